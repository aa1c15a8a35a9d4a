"""`fray explain` prints a manifest that a cluster takes, and a reason for each part of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from fray.cli.app import app
from fray.cli.explain import ExplainFormat, explain_job
from fray.cli.requested_job import load_job
from fray.errors import InvalidJobError
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from tests.unit.cluster.local_jobs import frayjob

JOB = frayjob(
    tpu="v5p-16",
    replicas=2,
    placement={"spot": "Required"},
    environment={"env": [{"name": "TEXT", "value": "two\nlines # and: more"}]},
)


def test_every_form_holds_the_same_manifest() -> None:
    manifest = build_attempt(JOB, attempt=1, settings=PlanSettings()).jobset
    assert yaml.safe_load(explain_job(JOB, ExplainFormat.TEXT)) == manifest
    assert yaml.safe_load(explain_job(JOB, ExplainFormat.YAML)) == manifest
    assert json.loads(explain_job(JOB, ExplainFormat.JSON)) == manifest


def test_every_selector_and_variable_has_its_reason() -> None:
    text = explain_job(JOB, ExplainFormat.TEXT)
    manifest = build_attempt(JOB, attempt=1, settings=PlanSettings()).jobset
    template = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    for label in template["nodeSelector"]:
        assert f"#   node selector {label} = " in text
    ours = [entry["name"] for entry in template["containers"][0]["env"] if entry["name"] != "TEXT"]
    for name in ours:
        assert f"#   env {name} = " in text
    assert "<https://" in text


def test_what_is_not_done_as_asked_is_said() -> None:
    job = frayjob(resources={"tpu": {"type": "v5p-8"}, "cpu": "10000"})
    assert "# Not done as asked:\n#   cpu 10000 is more than" in explain_job(job, ExplainFormat.TEXT)


def test_nodes_that_the_last_attempt_keeps_off_are_told_with_their_reason(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    why = "hosts failed there in attempts 1 and 2: UnexpectedAdmissionError: Pod was rejected"
    avoided = {"node": "node-7", "until": "2026-01-31T13:00:00.000Z", "reason": why}
    manifest = frayjob().to_manifest() | {"status": {"attempt": 3, "avoidedNodes": [avoided]}}
    (tmp_path / "job.json").write_text(json.dumps(manifest))
    app(["explain", "-f", str(tmp_path / "job.json")], standalone_mode=False)
    told = capfd.readouterr().out
    assert "attempt 3 is JobSet" in told
    assert (
        "#   node affinity kubernetes.io/hostname = NotIn node-7\n"
        f"#       status.avoidedNodes: node-7 until 2026-01-31T13:00:00.000Z ({why})\n"
    ) in told


def test_a_status_that_cannot_be_read_is_refused() -> None:
    manifest = frayjob().to_manifest() | {"status": {"attempt": "three"}}
    stdin = io.BytesIO(json.dumps(manifest).encode())
    with pytest.raises(InvalidJobError, match=r"status\.attempt: Input should be a valid integer"):
        load_job("-", stdin=stdin, with_status=True)
