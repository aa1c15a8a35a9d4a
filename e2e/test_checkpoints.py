"""A program that is told to end has time to save, and its next attempt goes on from there."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster.command import await_condition
from e2e.cluster.layout import Layout
from e2e.job_namespace import JobNamespace, build_shell

SAVES = """
    if test -e /state/step; then echo "resumed at $(cat /state/step)"; rm /state/step; exit 0; fi
    save() { echo "told in attempt $FRAY_ATTEMPT"; sleep 4; echo 17 > /state/step; exit 143; }
    trap save TERM
    echo ready; while true; do sleep 0.1; done
"""
"""Takes four seconds to save its state, which is more than the operator or JobSet wait for anything."""


def on_one_node(node: str, directory: str) -> dict[str, Any]:
    """A podTemplate by which all attempts run on a node, with a directory of it at /state."""
    host = {"path": directory, "type": "DirectoryOrCreate"}
    volume = {"name": "state", "hostPath": host}
    container = {"name": "main", "volumeMounts": [{"name": "state", "mountPath": "/state"}]}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "volumes": [volume], "containers": [container]}
    return {"spec": spec}


@pytest.mark.parametrize("by", ["suspension", "eviction"])
def test_a_program_saves_within_its_grace_and_the_next_attempt_goes_on(
    by: str, jobs: JobNamespace, layout: Layout
) -> None:
    node = layout.hosts[0].name
    template = on_one_node(node, f"/tmp/{jobs.name}")
    jobs.submit(build_shell("saving", SAVES, podTemplate=template))
    jobs.await_job("saving", "condition=Running")
    # It runs before its program has set the handler, and the first process of a container gets no signal
    # that it has no handler for.
    await_condition("the handler is set", lambda: jobs.logs("saving") == ["ready\n"], timeout=180)
    if by == "suspension":
        jobs.kubectl("patch", "fj/saving", "--type=merge", '--patch={"spec": {"suspend": true}}')
        jobs.await_job("saving", "jsonpath={.status.phase}=Suspended")
        jobs.kubectl("patch", "fj/saving", "--type=merge", '--patch={"spec": {"suspend": false}}')
    else:
        jobs.evict(jobs.pods("saving")[0]["metadata"]["name"])
    status = jobs.await_end("saving")
    assert status["phase"] == "Succeeded", status
    verdict = "Suspended" if by == "suspension" else "Preemption"
    assert [attempt["verdict"] for attempt in status["attempts"]] == [verdict, "Success"]
    assert jobs.logs("saving", attempt=2) == ["resumed at 17\n"]
