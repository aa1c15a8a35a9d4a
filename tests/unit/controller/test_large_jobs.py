"""FrayJobs may be as large as etcd takes: memory is bounded by their number, and they run as others do."""

from __future__ import annotations

import asyncio
from typing import Any

from fray.kube.resources import JOBSETS
from fray_operator.store import Store
from tests.unit.controller.watched_life import WatchedLife, live

MUCH = {"spec": {"containers": [{"name": "main", "env": [{"name": "MUCH", "value": "x" * 1_000_000}]}]}}


def manifest(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "default", "uid": "1", "resourceVersion": "1"}
    return {
        "metadata": {**metadata, "annotations": {"much": "x"}, "labels": {"much": "x"}},
        "spec": spec,
        "status": {"phase": "Running"},
    }


def test_of_a_large_job_all_but_its_spec_is_kept() -> None:
    store = Store()
    large = manifest(parent={"name": "p"}, podTemplate=MUCH)
    large["metadata"]["labels"] = {f"fray.dev/{number}": "x" * 60 for number in range(10_000)}
    store.put(large)
    kept = store.get(("default", "a"))
    assert kept is not None
    assert store.is_cut(kept)
    assert kept["spec"] == {"parent": {"name": "p"}}
    assert kept["status"] == {"phase": "Running"}
    assert len(str(kept)) < 1000
    assert store.has_children(("default", "p"))


def test_a_small_one_is_kept_whole() -> None:
    store = Store()
    store.put(manifest(replicas=2))
    kept = store.get(("default", "a"))
    assert kept == manifest(replicas=2)
    assert not store.is_cut(kept)


def test_a_large_job_is_begun_stopped_and_deleted_as_any() -> None:
    async def story(life: WatchedLife) -> None:
        await life.start()
        life.submit("train", podTemplate=MUCH)
        await asyncio.sleep(60)
        jobset = life.server.find(JOBSETS, "train-a1")
        assert jobset is not None
        assert len(str(jobset)) > 1_000_000
        life.edit("train", stopped=True)
        await asyncio.sleep(600)
        assert life.message("train", "Stopped") or "deletionTimestamp" in str(
            life.server.find(JOBSETS, "train-a1")
        )
        assert len(str(life.require("train"))) > 1_000_000

    live(story)
