"""`fray explain`: a FrayJob, the JobSet that a cluster would make of it, and why each part is as it is.

Offline. As text, the reasons are comments above the JobSet, so the whole is still YAML. Which job is meant
is `explained_job`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import yaml

from fray.cli.requested_job import as_sent
from fray.plan.facts import Fact
from fray.plan.jobset import AttemptPlan, build_attempt
from fray.plan.settings import PlanSettings
from fray.wire.frayjob import FrayJob

__all__ = ["ExplainFormat", "explain_job", "format_manifest"]

WIDTH = 100


class ExplainFormat(StrEnum):
    """Forms of `fray explain`."""

    TEXT = "text"
    YAML = "yaml"
    JSON = "json"


def explain_job(job: FrayJob, form: ExplainFormat, *, secrets: Sequence[str] = ()) -> str:
    """Return a job, and what its last attempt has become on a cluster, or the first one will.

    Two documents, or as JSON a List of both. `secrets` names the Secrets that would be made beside the job.

    Raises:
        RequestError: the job asks for hardware that doesn't exist.
    """
    attempt = job.status.attempt or 1
    plan = build_attempt(job, attempt=attempt, settings=PlanSettings())
    frayjob = as_sent(job.to_manifest())
    if form is ExplainFormat.JSON:
        both = {"apiVersion": "v1", "kind": "List", "items": [frayjob, plan.jobset]}
        return format_manifest(both, "json")
    as_text = form is ExplainFormat.TEXT
    beside = f"# With Secrets, which aren't shown: {', '.join(secrets)}\n" if as_text and secrets else ""
    reasons = _format_reasons(job, plan, attempt) if as_text else ""
    return f"{beside}{format_manifest(frayjob, 'yaml')}---\n{reasons}{format_manifest(plan.jobset, 'yaml')}"


def format_manifest(manifest: Any, form: str) -> str:
    """Return a manifest as YAML or as JSON."""
    if form == "json":
        return json.dumps(manifest, indent=2) + "\n"
    return str(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=WIDTH))


def _format_reasons(job: FrayJob, plan: AttemptPlan, attempt: int) -> str:
    lines = [f"{job.metadata.name}: {plan.gang.describe()}; attempt {attempt} is JobSet {plan.name}", ""]
    if plan.notices:
        lines += ["Not done as asked:", *(f"  {notice}" for notice in plan.notices), ""]
    lines.append("What it holds, and why:")
    for fact in plan.facts:
        lines += _format_fact(fact)
    return "".join(f"# {line}".rstrip() + "\n" for line in [*lines, ""])


def _format_fact(fact: Fact) -> list[str]:
    # One line each, however long the value: a variable may hold line breaks, which would end the comment.
    value = textwrap.shorten(fact.value, WIDTH, placeholder=" ...")
    source = f"  <{fact.source}>" if fact.source else ""
    return [f"  {fact.subject} = {value}", f"      {fact.because}{source}"]
