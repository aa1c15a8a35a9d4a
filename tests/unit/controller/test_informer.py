"""The cache of JobSets and pods: complete after each list, current while watched, never a storm."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fray.kube.api import Manifest, Page, WatchEvent
from fray.kube.errors import ApiError, ExpiredError, ForbiddenError, ThrottledError, UnreachableError
from fray.kube.resources import PODS, Resource
from fray.plan.remains import tells_of_end
from fray.vocabulary import LABEL_JOB
from fray_operator.frayjobs import FRAYJOB
from fray_operator.informer import Informer, JobKey, trim_jobset, trim_pod
from tests.unit.controller.virtual_time import run

TRAIN = ("default", "train")


def pod(name: str, *, job: str = "train", uid: str = "1", version: int = 1) -> Manifest:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {LABEL_JOB: job},
        }
    }


def event(kind: str, manifest: Manifest) -> WatchEvent:
    return WatchEvent(kind, manifest)


Step = Any
"""A list of pages (or an error), or what a watch does: events, then an error, a pause or its end."""


class Script:
    """An API that answers lists and watches from a script; at its end watches stay open and silent."""

    def __init__(self, *steps: Step) -> None:
        self._steps = deque(steps)
        self.calls: list[tuple[str, float, str]] = []

    async def list_pages(self, _: Resource, **options: Any) -> AsyncIterator[Page]:
        self.calls.append(("LIST", now(), options["labels"]))
        step = self._steps.popleft() if self._steps else []
        for page in step if isinstance(step, list) else [step]:
            if isinstance(page, ApiError):
                raise page
            if callable(page):
                page()
            else:
                yield Page(page, "7")

    async def watch(self, _: Resource, **options: Any) -> AsyncIterator[WatchEvent]:
        self.calls.append(("WATCH", now(), options["resource_version"]))
        if not self._steps:
            await asyncio.Event().wait()
        for step in self._steps.popleft():
            if isinstance(step, ApiError):
                raise step
            if isinstance(step, WatchEvent):
                yield step
            else:
                await asyncio.sleep(step)


def now() -> float:
    return asyncio.get_running_loop().time()


def nothing_more(_informer: Informer, _told: list[JobKey]) -> None:
    """The calls are looked at afterwards."""


def follow(
    script: Script,
    check: Callable[[Informer, list[JobKey]], None] = nothing_more,
    *,
    seconds: float = 1000.0,
) -> None:
    """Run an informer on a script for a while, then check it and the keys that it told."""

    async def main() -> None:
        told: list[JobKey] = []
        informer = Informer(
            script,  # type: ignore[arg-type]
            PODS,
            FRAYJOB,
            namespace=None,
            on_change=told.append,
            trim=lambda manifest: manifest,
            outlives=tells_of_end,
        )
        assert informer.silent_seconds == float("inf")
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(seconds)
        assert not task.done(), task.exception()
        check(informer, told)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


def names(informer: Informer, key: JobKey = TRAIN) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in informer.of_job(key)]


def expired() -> ExpiredError:
    return ExpiredError("WATCH pods", 410, "Expired", "too old")


def lost() -> UnreachableError:
    return UnreachableError("WATCH pods", 0, "ServerDisconnectedError", "")


def test_a_list_fills_the_cache_page_by_page_and_tells_each_job() -> None:
    script = Script([[pod("b"), pod("a")], [pod("c", job="other")]])

    def check(informer: Informer, told: list[JobKey]) -> None:
        assert names(informer) == ["a", "b"]  # in an order that doesn't depend on chance
        assert informer.get("default", "c") == pod("c", job="other")
        assert informer.get("default", "d") is None
        assert set(told) == {TRAIN, ("default", "other")}
        assert informer.synced.is_set()

    follow(script, check)
    assert script.calls == [("LIST", 0.0, LABEL_JOB), ("WATCH", 0.0, "7")]


def test_what_is_done_to_an_object_that_was_handed_out_stays_there() -> None:
    def check(informer: Informer, _told: list[JobKey]) -> None:
        for found in (informer.get("default", "a"), *informer.of_job(TRAIN)):
            assert found is not None
            found["metadata"]["labels"].clear()
        assert informer.of_job(TRAIN) == [informer.get("default", "a")] == [pod("a")]

    follow(Script([[pod("a")]]), check)


def test_an_object_whose_fields_come_in_another_order_is_no_news() -> None:
    reversed_pod = {"metadata": dict(reversed(pod("a")["metadata"].items()))}

    def check(_informer: Informer, told: list[JobKey]) -> None:
        assert told == [TRAIN]

    follow(Script([[pod("a")]], [event("MODIFIED", reversed_pod), 2000.0]), check)


def test_it_is_not_synced_before_the_first_list_was_read_whole() -> None:
    script = Script([[pod("a")], lost()])

    def check(informer: Informer, _told: list[JobKey]) -> None:
        assert names(informer) == ["a"]
        assert not informer.synced.is_set()

    follow(script, check, seconds=0.05)


def test_a_watch_goes_on_from_the_last_version_seen() -> None:
    script = Script(
        [[]], [event("ADDED", pod("a", version=8)), event("BOOKMARK", pod("x", version=12)), 300.0], [300.0]
    )
    follow(script)
    assert [call for call in script.calls if call[0] == "WATCH"] == [
        ("WATCH", 0.0, "7"),
        ("WATCH", 300.0, "12"),
        ("WATCH", 600.0, "12"),
    ]


def test_changes_are_followed_and_bookmarks_are_no_objects() -> None:
    script = Script(
        [[pod("a"), pod("b")]],
        [
            event("MODIFIED", pod("a", version=8)),
            event("DELETED", pod("b", version=9)),
            event("ADDED", pod("c", version=10)),
            event("BOOKMARK", {"metadata": {"resourceVersion": "11"}}),
            2000.0,
        ],
    )

    def check(informer: Informer, told: list[JobKey]) -> None:
        assert names(informer) == ["a", "c"]
        assert informer.get("default", "a") == pod("a", version=8)
        assert len(told) == 5

    follow(script, check)


def test_what_is_listed_or_remembered_again_and_has_not_changed_is_not_told() -> None:
    script = Script([[pod("a")]], [expired()], [[pod("a")]])

    def check(informer: Informer, told: list[JobKey]) -> None:
        informer.remember(pod("a"))
        assert told == [TRAIN]
        informer.remember(pod("a", version=2))
        assert told == [TRAIN, TRAIN]

    follow(script, check)


def test_an_answer_that_comes_after_what_the_watch_has_told_since_changes_nothing() -> None:
    script = Script([[]], [event("ADDED", pod("a", version=9)), event("MODIFIED", pod("a", version=10))])

    def check(informer: Informer, told: list[JobKey]) -> None:
        before = len(told)
        informer.remember(pod("a", version=9))
        assert informer.get("default", "a") == pod("a", version=10)
        assert len(told) == before
        informer.remember(pod("a", version=11))
        assert informer.get("default", "a") == pod("a", version=11)
        informer.remember(pod("a", uid="2", version=3))
        assert informer.get("default", "a") == pod("a", uid="2", version=3)

    follow(script, check)


def test_an_answer_that_comes_after_the_watch_has_told_of_the_end_is_not_kept() -> None:
    gone = event("DELETED", pod("a", version=10))
    script = Script([[]], [event("ADDED", pod("a", version=9)), gone, 2000.0])

    def check(informer: Informer, told: list[JobKey]) -> None:
        before = len(told)
        informer.remember(pod("a", version=9))
        assert informer.get("default", "a") is None
        assert len(told) == before
        informer.remember(pod("a", uid="2", version=11))
        assert informer.get("default", "a") == pod("a", uid="2", version=11)

    follow(script, check)


def test_what_no_watch_tells_of_is_forgotten_unless_it_has_changed_since() -> None:
    def unlabelled(version: int) -> Manifest:
        manifest = pod("a", version=version)
        owner = {"kind": "FrayJob", "name": "train", "controller": True}
        manifest["metadata"] |= {"labels": {}, "ownerReferences": [owner]}
        return manifest

    def check(informer: Informer, _told: list[JobKey]) -> None:
        informer.remember(unlabelled(3))
        informer.forget(unlabelled(2))
        assert names(informer) == ["a"]
        informer.forget(unlabelled(3))
        assert names(informer) == []

    follow(Script([[]]), check)


def test_an_object_with_an_empty_label_belongs_to_no_job() -> None:
    script = Script(
        [[pod("a", job=""), pod("b")]],
        [event("ADDED", pod("c", job="", version=8)), event("MODIFIED", pod("b", job="", version=9)), 2000.0],
    )

    def check(informer: Informer, told: list[JobKey]) -> None:
        assert [informer.get("default", name) for name in "abc"] == [None, None, None]
        assert names(informer) == []
        assert told == [TRAIN, TRAIN]

    follow(script, check)


def test_what_was_deleted_while_the_watch_was_broken_is_forgotten_and_told() -> None:
    script = Script([[pod("a"), pod("b", job="other")]], [expired()], [[pod("a")]])

    def check(informer: Informer, told: list[JobKey]) -> None:
        assert names(informer) == ["a"]
        assert names(informer, ("default", "other")) == []
        assert told[-1] == ("default", "other")

    follow(script, check)


def test_what_was_written_while_a_list_was_read_is_kept() -> None:
    informers: list[Informer] = []
    script = Script(
        [[pod("a")]], [expired()], [[pod("a")], lambda: informers[0].remember(pod("new", version=99))]
    )

    async def main() -> None:
        informer = Informer(
            script,  # type: ignore[arg-type]
            PODS,
            FRAYJOB,
            namespace=None,
            on_change=lambda _: None,
            trim=lambda manifest: manifest,
        )
        informers.append(informer)
        task = asyncio.create_task(informer.run())
        await asyncio.sleep(100)
        assert names(informer) == ["a", "new"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


def test_the_deletion_of_a_predecessor_does_not_drop_its_successor() -> None:
    script = Script(
        [[pod("a", uid="2", version=9)]], [event("DELETED", pod("a", uid="1", version=8)), 2000.0]
    )

    def check(informer: Informer, _told: list[JobKey]) -> None:
        assert names(informer) == ["a"]

    follow(script, check)


def test_an_object_that_is_given_to_another_job_leaves_the_first_and_both_are_told() -> None:
    script = Script([[pod("a")]], [event("MODIFIED", pod("a", job="other", version=8)), 2000.0])

    def check(informer: Informer, told: list[JobKey]) -> None:
        assert names(informer) == []
        assert names(informer, ("default", "other")) == ["a"]
        assert told == [TRAIN, TRAIN, ("default", "other")]

    follow(script, check)


@pytest.mark.parametrize(
    "error",
    [lost(), ForbiddenError("WATCH pods", 403, "Forbidden", "no"), expired()],
    ids=lambda error: type(error).__name__,
)
def test_a_server_that_keeps_failing_is_asked_ever_more_rarely(error: ApiError) -> None:
    script = Script(*[step for _ in range(1000) for step in ([[]], [error])])
    follow(script, seconds=600)
    lists = [at for method, at, _ in script.calls if method == "LIST"]
    assert 20 < len(lists) < 60
    assert max(b - a for a, b in itertools.pairwise(lists)) <= 30


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    script = Script([[]], [ThrottledError("WATCH pods", 429, "TooManyRequests", "", 50.0)], [[]])
    follow(script)
    assert [at for method, at, _ in script.calls if method == "LIST"] == [0.0, 50.0]


def test_one_good_event_makes_up_for_earlier_failures() -> None:
    broken = [step for _ in range(8) for step in ([[]], [lost()])]
    script = Script(*broken, [[]], [event("ADDED", pod("a", version=8)), lost()], [[]])
    follow(script)
    lists = [at for method, at, _ in script.calls if method == "LIST"]
    assert lists[-1] - lists[-2] <= 0.2


def test_watches_that_are_cut_when_they_have_been_idle_for_long_are_opened_again_soon() -> None:
    script = Script(*[step for _ in range(100) for step in ([[]], [60.0, lost()])])
    follow(script, seconds=6000)
    lists = [at for method, at, _ in script.calls if method == "LIST"]
    assert max(b - a for a, b in itertools.pairwise(lists)) <= 60.2


def test_watches_that_end_at_once_are_not_opened_in_a_storm() -> None:
    script = Script([[]], *[[] for _ in range(1000)])
    follow(script, seconds=600)
    assert len(script.calls) < 60


def test_silence_is_counted_from_the_last_thing_heard() -> None:
    script = Script([[]], [100.0, event("BOOKMARK", {"metadata": {"resourceVersion": "9"}}), 10_000.0])

    def check(informer: Informer, _told: list[JobKey]) -> None:
        assert informer.silent_seconds == 60.0

    follow(script, check, seconds=160)


def test_a_trimmed_pod_holds_what_is_decided_on_and_little_else() -> None:
    full = {
        "metadata": {**pod("a")["metadata"], "managedFields": ["much"], "annotations": {"much": "more"}},
        "spec": {
            "nodeName": "node",
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "schedulingGates": [{"name": "gate"}],
            "volumes": ["much"],
            "containers": [{"name": "main", "resources": {"limits": {}}, "env": ["much"]}],
            "initContainers": [
                {"name": "init"},
                {"name": "proxy", "restartPolicy": "Always", "env": ["much"]},
            ],
        },
        "status": {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "no disk",
            "startTime": "now",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready"}, {"type": "PodScheduled"}, {"type": "DisruptionTarget"}],
            "containerStatuses": [
                {"name": "main", "image": "i", "state": {"waiting": {}}, "imageID": "much"}
            ],
            "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 1}}}],
        },
    }
    assert trim_pod(full) == {
        "metadata": pod("a")["metadata"],
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "main", "resources": {"limits": {}}}],
            "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
        },
        "status": {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "no disk",
            "startTime": "now",
            "conditions": [{"type": "PodScheduled"}, {"type": "DisruptionTarget"}],
            "containerStatuses": [{"name": "main", "image": "i", "state": {"waiting": {}}}],
            "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 1}}}],
        },
    }


def test_where_a_pod_may_go_is_kept_until_it_is_there() -> None:
    where = {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "schedulingGates": [{"name": "gate"}],
    }
    waiting = {**pod("a"), "spec": {**where, "containers": []}}
    assert trim_pod(waiting)["spec"] == waiting["spec"]
    assert trim_pod({**waiting, "spec": {**where, "nodeName": "n", "containers": []}})["spec"] == {
        "nodeName": "n",
        "containers": [],
    }


def test_labels_and_owners_that_nothing_is_decided_by_are_not_kept() -> None:
    owners = [{"uid": str(number)} for number in range(1000)] + [{"uid": "c", "controller": True}]
    metadata = {**pod("a")["metadata"], "ownerReferences": owners}
    metadata["labels"] = {**metadata["labels"], **{f"fray.dev/{number}": "x" * 60 for number in range(1000)}}
    trimmed = trim_pod({"metadata": metadata})["metadata"]
    assert trimmed["labels"] == {LABEL_JOB: "train"}
    assert trimmed["ownerReferences"] == [{"uid": "c", "controller": True}, {"uid": "0"}]


def test_a_pod_of_which_nothing_is_known_yet_can_be_trimmed() -> None:
    trimmed = trim_pod(pod("a"))
    assert trimmed["status"] == {"conditions": [], "containerStatuses": [], "initContainerStatuses": []}


def test_a_trimmed_jobset_holds_its_end_its_owner_its_number_and_whether_it_is_suspended() -> None:
    metadata = {**pod("a")["metadata"], "ownerReferences": [{"uid": "9"}], "deletionTimestamp": "now"}
    number = {"template": {"metadata": {"labels": {"fray.dev/attempt": "2"}}}}
    template = {"metadata": {"labels": {"fray.dev/attempt": "2", "much": "more"}}, "spec": {"much": "more"}}
    full = {
        "metadata": {**metadata, "managedFields": ["much"]},
        "spec": {"suspend": True, "replicatedJobs": [{"template": {"spec": {"template": template}}}]},
        "status": {"conditions": [{"type": "Failed"}], "terminalState": "Failed", "replicatedJobsStatus": []},
    }
    assert trim_jobset(full) == {
        "metadata": metadata,
        "spec": {"suspend": True, "replicatedJobs": [{"template": {"spec": number}}]},
        "status": {"conditions": [{"type": "Failed"}], "terminalState": "Failed"},
    }
    assert trim_jobset({"metadata": metadata})["spec"] == {"suspend": False, "replicatedJobs": []}


# --- what outlives its object -------------------------------------------------------------------------------


def marked(name: str, *, uid: str = "1", version: int = 1) -> Manifest:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    return pod(name, uid=uid, version=version) | {"status": {"conditions": [condition]}}


def test_what_a_deleted_pod_showed_last_is_kept_until_it_is_forgotten() -> None:
    """Its mark and its deletion come in one read: nobody has seen it with its mark."""
    last = marked("a", version=3)
    script = Script(
        [[pod("a"), pod("b", uid="2")]],
        [
            event("MODIFIED", marked("a", version=2)),
            event("DELETED", last),
            event("DELETED", pod("b", uid="2")),
        ],
    )

    def check(informer: Informer, told: list[JobKey]) -> None:
        assert names(informer) == []
        assert informer.gone_of_job(TRAIN) == [last]
        assert told[-1] == TRAIN
        informer.forget_gone(TRAIN)
        assert informer.gone_of_job(TRAIN) == []

    follow(script, check)


def test_what_a_pod_showed_that_a_list_misses_is_kept() -> None:
    script = Script([[marked("a")]], [expired()], [[]])
    follow(script, lambda informer, _: check_kept(informer, marked("a")))


def check_kept(informer: Informer, last: Manifest) -> None:
    assert names(informer) == []
    assert informer.gone_of_job(TRAIN) == [last]
