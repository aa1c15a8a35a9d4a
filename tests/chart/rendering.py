"""Render the chart with the real helm, and find objects in what comes out.

Nothing is installed and no cluster is asked.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.build import build

CHART = Path(__file__).parents[2] / "charts" / "fray"
RELEASE = "fray"
NAMESPACE = "fray-system"
JOBSET_API = "jobset.x-k8s.io/v1alpha2"

Object = dict[str, Any]


class HelmRefusedError(Exception):
    """Helm did not render the chart; the text is what it said."""


@functools.cache
def helm_program() -> str:
    """Path of the pinned helm; `python -m e2e.cluster build helm` prepares it."""
    return str(build(("helm",))["helm"])


def run_helm(*arguments: str, stdin: str = "") -> str:
    """Standard output of helm. Raises HelmRefusedError with its standard error when it fails."""
    command = [helm_program(), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise HelmRefusedError(done.stderr + done.stdout)
    return done.stdout


def render(
    values: Object | None = None, *, namespace: str = NAMESPACE, release: str = RELEASE
) -> list[Object]:
    """All objects that an installation with these values creates."""
    return list(yaml.safe_load_all(render_text(values, namespace=namespace, release=release)))


def render_text(values: Object | None = None, *, namespace: str = NAMESPACE, release: str = RELEASE) -> str:
    """What helm prints for these values; it has found it to be YAML by then."""
    return _render(json.dumps(values or {}), namespace, release)


@functools.cache
def _render(values: str, namespace: str, release: str) -> str:
    return run_helm("template", release, str(CHART), f"--namespace={namespace}", "--values=-", stdin=values)


def render_notes(
    folder: Path, values: Object | None = None, *, namespace: str = NAMESPACE, apis: tuple[str, ...] = ()
) -> str:
    """What an installation prints at its end on a cluster that serves `apis`; works in `folder`.

    `helm template` leaves the notes out, so a copy of the chart carries them in an object.
    """
    copy = folder / "chart"
    shutil.copytree(CHART, copy, dirs_exist_ok=True)
    (copy / "templates" / "NOTES.txt").rename(copy / "notes.txt")
    (copy / "templates" / "notes.yaml").write_text('notes: {{ tpl (.Files.Get "notes.txt") . | toJson }}\n')
    shown = run_helm(
        "template",
        RELEASE,
        str(copy),
        f"--namespace={namespace}",
        "--values=-",
        "--show-only=templates/notes.yaml",
        *(f"--api-versions={api}" for api in apis),
        stdin=json.dumps(values or {}),
    )
    return str(yaml.safe_load(shown)["notes"])


def find(
    objects: list[Object], kind: str, name: str | None = None, *, namespace: str | None = None
) -> Object:
    """The one object of a kind, and of a name and namespace where these are given."""
    found = [
        candidate
        for candidate in objects
        if candidate["kind"] == kind
        and name in (None, candidate["metadata"]["name"])
        and namespace in (None, candidate["metadata"].get("namespace"))
    ]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def kinds(objects: list[Object]) -> set[str]:
    """The kinds that occur."""
    return {candidate["kind"] for candidate in objects}


def operator_pod(objects: list[Object]) -> Object:
    """The pod template of the operator's Deployment."""
    template: Object = find(objects, "Deployment")["spec"]["template"]
    return template


def rights(role: Object) -> set[tuple[str, str, str]]:
    """What a role grants, as (`group/resource` or `resource`, verb, name or empty for all)."""
    return {
        (f"{group}/{resource}" if group else resource, verb, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
