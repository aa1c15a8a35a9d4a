"""The log tells each job's life in a line a step, with whose it is; passes without one say nothing."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBSETS
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_COMPLETION_INDEX, LABEL_JOBSET_UID
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.logs import configure_logging
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

Lines = Callable[[], list[dict[str, Any]]]
LOGGERS = ("", "fray", "fray_operator")


@contextmanager
def logged(least: str = "INFO") -> Iterator[Lines]:
    """Have the operator log as in its pod; yield a function that returns the lines about jobs so far."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(logger, logger.level) for logger in loggers]
    handlers = loggers[0].handlers[:]
    loggers[0].handlers.clear()  # or they would be closed
    with redirect_stderr(io.StringIO()) as written:
        configure_logging(least)
        try:
            yield lambda: [line for line in map(json.loads, written.getvalue().splitlines()) if "uid" in line]
        finally:
            loggers[0].handlers[:] = handlers
            for logger, level in before:
                logger.setLevel(level)


class Host:
    """The only pod of `train`, as the kubelet tells of it."""

    def __init__(self, server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        self._server, self._jobsets, self._pods = server, jobsets, pods

    def tell(self, attempt: int, phase: str, state: dict[str, Any]) -> None:
        jobset = self._server.find(JOBSETS, f"train-a{attempt}")
        assert jobset is not None
        labels = {**jobset["metadata"]["labels"], LABEL_COMPLETION_INDEX: "0"}
        labels |= {LABEL_JOBSET_UID: jobset["metadata"]["uid"]}
        container = {"name": "main", "state": state}
        metadata = {"name": f"train-a{attempt}-slice-0-0-x", "namespace": "default", "labels": labels}
        metadata |= {"uid": f"uid-pod-{attempt}", "creationTimestamp": LONG_AGO}
        status = {"phase": phase, "containerStatuses": [container]}
        self._pods.remember({"metadata": metadata, "spec": {"nodeName": "node"}, "status": status})

    def run(self, attempt: int) -> None:
        self.tell(attempt, "Running", {"running": {"startedAt": LONG_AGO}})

    def hold(self, attempt: int) -> None:
        waiting = {"reason": "ErrImagePull", "message": "not found"}
        self.tell(attempt, "Pending", {"waiting": waiting})

    def exit(self, attempt: int, code: int) -> None:
        ended = {"exitCode": code, "startedAt": LONG_AGO, "finishedAt": LONG_AGO}
        self.tell(attempt, "Failed" if code else "Succeeded", {"terminated": ended})
        jobset = self._server.find(JOBSETS, f"train-a{attempt}")
        assert jobset is not None
        kind = "Failed" if code else "Completed"
        jobset["status"] = {"conditions": [{"type": kind, "status": "True"}]}
        self._jobsets.remember(self._server.store(JOBSETS, jobset))


def test_a_life_is_a_line_for_each_step() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, pods: Informer) -> None:
        host, later = Host(server, jobsets, pods), asyncio.get_running_loop().call_later
        later(60, host.hold, 1)
        later(100, host.run, 1)
        later(200, host.exit, 1, 1)
        later(300, host.run, 2)
        later(400, host.exit, 2, 0)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        lines = told()
        assert [(line.get("attempt"), line["message"]) for line in lines] == [
            (None, "Accepted: the job asks for 1 copy on CPU"),
            (1, "AttemptStarted: attempt 1 started as JobSet train-a1"),
            (1, "AttemptRunning: all hosts of attempt 1 run"),
            (
                1,
                "AttemptEnded: attempt 1 ended (Failure: NonZeroExit): "
                "rank 0 (slice 0, host 0) exited with code 1",
            ),
            (2, "AttemptStarted: attempt 2 started as JobSet train-a2"),
            (2, "AttemptRunning: all hosts of attempt 2 run"),
            (2, "Succeeded: Completed: the host exited with code 0 in attempt 2"),
        ]
        assert {(line["level"], line["namespace"], line["name"], line["uid"]) for line in lines} == {
            ("INFO", "default", "train", job["metadata"]["uid"])
        }
        assert passes(metrics, "done") > 2 * len(lines)

    job = frayjob("train", spec={"retries": {"failures": 1}})
    with logged() as told:
        reconcile_for_an_hour([job], check, prepare=prepare)


def test_a_job_that_is_refused_says_so_once() -> None:
    def check(server: MemoryServer, _metrics: Metrics, _: WorkQueue[Key]) -> None:
        (line,) = told()
        assert line["message"].startswith("PodTemplateInvalid: ")
        assert (line["level"], line["name"], "attempt" in line) == ("INFO", "train", False)

    with logged() as told:
        reconcile_for_an_hour(
            [frayjob("train", spec={"podTemplate": {"spec": {"containers": "banana"}}})], check
        )


def test_an_operator_that_takes_over_repeats_nothing() -> None:
    def keep(server: MemoryServer, *_: object) -> None:
        jobs.extend(server.all(FRAYJOBS))
        jobsets.extend(server.all(JOBSETS))

    def give(server: MemoryServer, cache: Informer, _: Informer) -> None:
        server.store(FRAYJOBS, jobs[0])
        (made,) = jobsets
        cache.remember(server.store(JOBSETS, made))

    jobs, jobsets = list[Manifest](), list[Manifest]()
    with logged() as told:
        reconcile_for_an_hour([frayjob("train")], keep)
        assert len(told()) == 2
        reconcile_for_an_hour(jobs[:], lambda *_: None, prepare=give)
        assert len(told()) == 2
