"""Where the head of a pool is, of any pods, and how long a worker waits to learn it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fray.errors import HeadUnknownError
from fray.kube.errors import ApiError, ExpiredError, ForbiddenError, ServerError
from fray.kube.objects import Manifest, Page, WatchEvent
from fray.runtime.api.client import ApiClient
from fray.runtime.api.head_address import HeadPod, await_head, build_head_selector, find_head, has_ended


def pod(uid: str = "1", address: str | None = "10.0.0.1", **more: Any) -> Manifest:
    metadata = {
        "name": f"train-{uid}",
        "uid": uid,
        "creationTimestamp": more.pop("created", "2026-01-01T00:00:00Z"),
    }
    if more.pop("ending", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    status: Manifest = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}], **more}
    return {"metadata": metadata, "status": status | ({"podIP": address} if address else {})}


READY = {"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]}
HEAD = HeadPod("1", "10.0.0.1", ready=False)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], "no pod"),
        ([pod()], HEAD),
        ([pod(**READY)], HeadPod("1", "10.0.0.1", ready=True)),
        ([pod(address=None, phase="Pending")], "train-1 of rank 0 has no address yet: Pending"),
        ([pod(phase="Failed")], "no pod"),
        ([pod(phase="Succeeded")], "no pod"),
        ([pod(ending=True)], "no pod"),
        ([pod(ending=True), pod("2", "10.0.0.2")], HeadPod("2", "10.0.0.2", ready=False)),
        ([pod("2", created="2026-01-01T00:00:09Z"), pod("3")], HeadPod("2", "10.0.0.1", ready=False)),
        ([pod("2", None, created="2026-01-01T00:00:09Z"), pod("3")], "train-2 of rank 0 has no address"),
        ([{"metadata": {}}], "has no address yet"),
    ],
)
def test_the_head_is_in_the_newest_living_pod(pods: list[Manifest], expected: HeadPod | str) -> None:
    found = find_head(pods)
    assert found == expected if isinstance(expected, HeadPod) else expected in cast("str", found)


def test_only_rank_0_of_the_attempt_is_selected() -> None:
    assert build_head_selector("u", 2) == (
        "fray.dev/job-uid=u,fray.dev/attempt=2,jobset.sigs.k8s.io/replicatedjob-name=slice,"
        "jobset.sigs.k8s.io/job-index=0,batch.kubernetes.io/job-completion-index=0"
    )


@dataclass
class Script:
    """An API server: lists give `lists` in turn, watches `watches`; after them the time is up."""

    lists: list[list[Manifest] | ApiError]
    watches: list[list[WatchEvent | ApiError]] = field(default_factory=list)
    now: float = 0.0
    since: list[str] = field(default_factory=list)
    namespace: str = "ml"

    def list_pages(self, _: object, *, namespace: str, labels: str) -> Iterator[Page]:
        assert (namespace, labels) == ("ml", build_head_selector("u", 1))
        answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(answer, ApiError):
            raise answer
        yield Page(answer, "7")

    def watch(
        self, _: object, *, namespace: str, labels: str, resource_version: str, seconds: float
    ) -> Iterator[WatchEvent]:
        assert (namespace, labels) == ("ml", build_head_selector("u", 1))
        self.since.append(resource_version)
        if not self.watches:
            self.now += seconds
            return
        for event in self.watches.pop(0):
            if isinstance(event, ApiError):
                raise event
            yield event

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def find(self, seconds: float = 60.0) -> HeadPod:
        return await_head(
            cast("ApiClient", self),
            job_uid="u",
            attempt=1,
            seconds=seconds,
            pause=self.pass_time,
            clock=lambda: self.now,
        )


def error(kind: type[ApiError], code: int) -> ApiError:
    return kind("GET /pods", code, "Reason", "said so")


def test_a_head_that_is_there_is_found_by_the_list() -> None:
    script = Script([[pod()]])
    assert script.find() == HEAD
    assert script.since == []


def test_a_head_that_comes_later_is_found_by_the_watch() -> None:
    events: list[WatchEvent | ApiError] = [
        WatchEvent("ADDED", pod(address=None)),
        WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
        WatchEvent("MODIFIED", pod()),
    ]
    script = Script([[]], [events])
    assert script.find() == HEAD
    assert script.since == ["7"]


def test_a_pod_that_is_gone_is_not_the_head() -> None:
    old, new = pod("0", address=None, created="2026-01-01T00:09:00Z"), pod()
    script = Script([[old]], [[WatchEvent("ADDED", new), WatchEvent("DELETED", old)]])
    assert script.find() == HEAD


@pytest.mark.parametrize("passing", [error(ExpiredError, 410), error(ServerError, 500)])
def test_what_passes_is_waited_out(passing: ApiError) -> None:
    assert Script([passing, [pod()]]).find() == HEAD
    assert Script([[], [pod()]], [[passing]]).find() == HEAD


def test_a_watch_that_ends_is_followed_by_a_list_but_not_without_a_pause() -> None:
    script = Script([[], [], [pod()]], [[], []])
    assert script.find() == HEAD
    assert script.now == 2.0


def test_a_right_that_is_missing_is_told_at_once() -> None:
    script = Script([error(ForbiddenError, 403)])
    with pytest.raises(ForbiddenError):
        script.find()
    assert script.now == 0.0


@pytest.mark.parametrize(
    ("lists", "problem"),
    [
        ([[]], "no pod that runs"),
        ([[pod(address=None)]], "train-1 of rank 0 has no address"),
        ([error(ServerError, 500)], "500 Reason: said so"),
    ],
)
def test_the_deadline_is_told_with_what_was_known_last(lists: Any, problem: str) -> None:
    script = Script(lists)
    with pytest.raises(HeadUnknownError, match=f"after 60.0 s: .*{problem}"):
        script.find(60.0)
    assert script.now == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("pods", "ended"),
    [
        ([pod()], False),
        ([pod(), pod("2")], False),
        ([], True),
        ([pod("2")], True),
        ([pod(phase="Failed")], True),
        ([pod(ending=True)], True),
        (error(ServerError, 500), False),
    ],
)
def test_a_head_has_ended_once_its_pod_has_and_the_server_says_so(
    pods: list[Manifest] | ApiError, ended: bool
) -> None:
    script = cast("ApiClient", Script([pods]))
    assert has_ended(script, "1", job_uid="u", attempt=1) is ended
