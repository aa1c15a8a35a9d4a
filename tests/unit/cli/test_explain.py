"""`fray explain` prints a manifest that a cluster takes, and a reason for each part of it."""

from __future__ import annotations

import json

import yaml

from fray.cli.explain import ExplainFormat, explain_job
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
