"""docs/exit-codes.md: every exit code of commands and of what Fray runs in pods (`make docs`).

Meanings are the docstrings of src/fray/vocabulary.py; reasons are those of src/fray/plan/reasons.py.
"""

from __future__ import annotations

from pathlib import Path

import fray.vocabulary
from fray.plan.reasons import find_unrun
from fray.vocabulary import (
    EXIT_ATTEMPT_OVER,
    EXIT_BROKEN_PIPE,
    EXIT_SIGNAL_BASE,
    EXIT_TIMEOUT,
    EXIT_USAGE,
    EXIT_WORKER_ENDED,
    EXIT_WORKER_LOST_HEAD,
    EXIT_WORKER_REFUSED,
)
from tools.frayjob_page import escape_cell
from tools.variables_page import read_constants

__all__ = ["render_exit_codes_page"]

HEAD = """\
<!-- Generated from src/fray/vocabulary.py by `make docs`: change the texts there, not this page. -->
# Exit codes

| code | of | meaning | reason in the status |
|---|---|---|---|
| 0 | all | Success. | - |
"""
NOTES = """\

- **Commands.** `fray run` and `fray wait` exit with the code of the job, which is that of the first process \
that failed. `fray exec` and `fray shell` exit with the code of the command in the host, `fray doctor` with \
1 if anything is wrong.
- **Jobs.** The code of a program stays as it is, also that of `sys.exit`: the FrayJob has it in \
`status.attempts[].exitCode`. With a code that has a reason the entrypoint never ran, and \
[failures.md](failures.md#an-attempt-or-the-job-ended) says what to do. A program that ends with such a code \
itself isn't confused with it, since Fray also writes a termination message.
- **Workers.** Worker processes of a pool report these codes to the process that started them. Logs and \
`WorkerDiedError` show them.
- **The operator** exits with 0 after SIGTERM, and with 1 when it can't work (no cluster, a kind that isn't \
installed, a port that is taken, its lease lost). Its log has the cause, and Kubernetes starts it again.
"""
COMMANDS_ONLY = (EXIT_USAGE, EXIT_TIMEOUT, EXIT_BROKEN_PIPE)
WORKERS = (
    EXIT_WORKER_ENDED,
    EXIT_WORKER_LOST_HEAD,
    EXIT_WORKER_REFUSED,
    EXIT_ATTEMPT_OVER,
)


def render_exit_codes_page() -> str:
    """Return the page as the constants and reasons are now."""
    constants = read_constants(Path(fray.vocabulary.__file__), prefix="EXIT_")
    return HEAD + "".join(_row(code, meaning) for code, meaning in constants) + NOTES


def _row(code: int, meaning: str) -> str:
    reason = find_unrun(code)
    shown = f"{code} + N" if code == EXIT_SIGNAL_BASE else str(code)
    cells = (shown, _describe_users(code), escape_cell(meaning), f"`{reason}`" if reason else "-")
    return f"| {' | '.join(cells)} |\n"


def _describe_users(code: int) -> str:
    if code in COMMANDS_ONLY:
        return "commands"
    if code in WORKERS:
        return "workers"
    return "jobs, so `fray run` too" if find_unrun(code) else "commands, jobs"
