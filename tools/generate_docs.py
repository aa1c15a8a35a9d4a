"""Write the generated parts of docs/ (`make docs`).

docs/failures.md has tables from the rows of src/fray/plan/reasons.py, docs/actors.md one from those of
src/fray/actor_reasons.py, docs/contexts.md from those of src/fray/job/traits.py; docs/exit-codes.md,
docs/frayjob.md and docs/variables.md are generated as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from fray.actor_reasons import ACTOR_REASONS
from fray.job.traits import CONTEXTS, Feature, Traits
from fray.plan.reasons import REASONS, ReasonRow
from fray.vocabulary import ConditionType, VerdictKind
from tools.exit_codes_page import render_exit_codes_page
from tools.frayjob_page import render_frayjob_page
from tools.variables_page import render_variables_page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "failures.md"
BEGIN = "<!-- {}: generated from {} by `make docs` -->"
END = "<!-- end of {} -->"
BUDGETS = {VerdictKind.FAILURE: "failures", VerdictKind.PREEMPTION: "preemptions"}


def render_page(page: str, source: str, tables: Mapping[str, str]) -> str:
    """Return the page with these tables, by name; raises `ValueError` where one has no place."""
    for name, table in tables.items():
        begin, end = BEGIN.format(name, source), END.format(name)
        between = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", flags=re.DOTALL)
        if between.search(page) is None:
            raise ValueError(f"the page lacks the lines {begin!r} and {end!r}")
        page = between.sub(lambda _, new=f"{begin}\n{table}\n{end}": new, page)  # type: ignore[misc]
    return page


def render_pages() -> dict[Path, str]:
    """Return all pages that are generated, or have generated tables, as they are now."""
    actors, contexts = PAGE.with_name("actors.md"), PAGE.with_name("contexts.md")
    reasons = {"waits": _waits(), "ends": _ends(), "progress": _progress()}
    traits = {"differences": _differences(), "refusals": _refusals()}
    return {
        PAGE: render_page(PAGE.read_text(encoding="utf-8"), "src/fray/plan/reasons.py", reasons),
        actors: render_page(
            actors.read_text(encoding="utf-8"), "src/fray/actor_reasons.py", {"reasons": _actor_reasons()}
        ),
        contexts: render_page(contexts.read_text(encoding="utf-8"), "src/fray/job/traits.py", traits),
        PAGE.with_name("exit-codes.md"): render_exit_codes_page(),
        PAGE.with_name("frayjob.md"): render_frayjob_page(),
        PAGE.with_name("variables.md"): render_variables_page(),
    }


def _waits() -> str:
    rows = [
        f"| `{reason}` | {row.meaning} | {row.remedy} |"
        for reason, row in REASONS.items()
        if row.meaning and not _is_end(row)
    ]
    return "\n".join(["| reason | what it means | what to do |", "|---|---|---|", *rows])


def _ends() -> str:
    rows = [
        f"| `{reason}` | {row.meaning} | {_describe_charge(row)} | {row.remedy} |"
        for reason, row in REASONS.items()
        if row.meaning and _is_end(row)
    ]
    return "\n".join(["| reason | what happened | charged to | what to do |", "|---|---|---|---|", *rows])


def _is_end(row: ReasonRow) -> bool:
    return ConditionType.FINISHED in row.stands_on


def _progress() -> str:
    *first, last = (f"`{reason}`" for reason, row in REASONS.items() if not row.meaning)
    return f"{', '.join(first)} and {last} tell how far a job is, and ask nothing of you."


def _actor_reasons() -> str:
    rows = [
        f"| `{reason}` | {', '.join(f'`{each}`' for each in row.stands_on)} | {row.meaning} |"
        for reason, row in ACTOR_REASONS.items()
        if row.meaning
    ]
    return "\n".join(["| reason | conditions | what it means |", "|---|---|---|", *rows])


def _describe_charge(row: ReasonRow) -> str:
    if row.charge is None:
        return "-"
    final = "ends the job" if row.final else ""
    return "; ".join(filter(None, [BUDGETS.get(row.charge, "nothing"), final, row.charge_note]))


def _differences() -> str:
    rows = [
        f"| {item.metadata['label']} | "
        + " | ".join("yes" if getattr(traits, item.name) else "no" for traits in CONTEXTS.values())
        + " |"
        for item in fields(Traits)
        if item.metadata
    ]
    return "\n".join([f"| | {' | '.join(CONTEXTS)} |", f"|{'---|' * (len(CONTEXTS) + 1)}", *rows])


def _refusals() -> str:
    rows = []
    for feature in Feature:
        for refusal in dict.fromkeys(filter(None, (each.refuses.get(feature) for each in CONTEXTS.values()))):
            kinds = ", ".join(
                f"`{kind}`" for kind, each in CONTEXTS.items() if each.refuses.get(feature) == refusal
            )
            rows.append(f"| `{feature}` | {kinds} | {refusal.reason} | {refusal.instead} |")
    return "\n".join(["| what | in | why | what to do |", "|---|---|---|---|", *rows])


def main() -> None:
    """Write the pages and say which have changed."""
    for path, new in render_pages().items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(new, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'unchanged' if new == old else 'written'}")


if __name__ == "__main__":
    main()
