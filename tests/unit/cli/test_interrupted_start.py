"""Ctrl-C in the first moments of a command, while it imports what it needs."""

from __future__ import annotations

import subprocess
import sys

from fray.vocabulary import EXIT_INTERRUPTED

PROGRAM = """
import sys
from fray.cli.__main__ import main

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

assert "typer" not in sys.modules
sys.meta_path.insert(0, Interrupting())
main()
"""


def test_an_interrupt_while_modules_are_imported_ends_without_a_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (EXIT_INTERRUPTED, "", "")
