"""What the operator remembers of FrayJobs: unfinished ones, those to be deleted, and who is whose child."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.plan.raw_jobs import ParentState
from fray_operator.store import Store

KEY = ("default", "train")
ENDED = "2026-01-31T12:00:00Z"


def manifest(version: int, *, uid: str = "1", finished: bool = False, **metadata: Any) -> dict[str, Any]:
    condition = {"type": "Finished", "status": "True" if finished else "False", "lastTransitionTime": ENDED}
    return {
        "metadata": {
            "namespace": "default",
            "name": "train",
            "uid": uid,
            "resourceVersion": str(version),
            **metadata,
        },
        "status": {"conditions": [condition]},
    }


def test_a_newer_version_replaces_an_older_one_and_is_news() -> None:
    store = Store()
    assert store.put(manifest(9))
    assert store.put(manifest(10))
    assert store.get(KEY) == manifest(10)
    assert len(store) == 1
    assert list(store) == [KEY]


def test_versions_that_are_known_already_are_no_news() -> None:
    store = Store()
    store.put(manifest(10))
    assert not store.put(manifest(9))
    assert not store.put(manifest(10))
    assert store.get(KEY) == manifest(10)


def test_another_object_of_the_name_is_news_whatever_its_version() -> None:
    store = Store()
    store.put(manifest(10))
    assert store.put(manifest(5, uid="2"))
    assert store.get(KEY) == manifest(5, uid="2")


@pytest.mark.parametrize("deleted", [{}, {"deletionTimestamp": "now"}], ids=["", "being deleted"])
def test_finished_jobs_are_not_kept(deleted: dict[str, str]) -> None:
    store = Store()
    store.put(manifest(10))
    gone = manifest(11, finished=True, **deleted)
    assert store.put(gone)
    assert store.get(KEY) is None
    assert not store.put(gone)


def test_a_job_that_is_being_deleted_is_kept_until_it_has_ended() -> None:
    store = Store()
    store.put(manifest(10))
    assert store.put(manifest(11, deletionTimestamp="now"))
    assert store.get(KEY) == manifest(11, deletionTimestamp="now")


def test_a_job_is_known_by_its_uid_while_it_has_not_finished() -> None:
    store = Store()
    store.put(manifest(10))
    assert (store.knows("1"), store.knows("2")) == (True, False)
    store.put(manifest(11, finished=True))
    assert not store.knows("1")


def test_an_old_event_does_not_drop_a_job() -> None:
    store = Store()
    store.put(manifest(10))
    assert not store.put(manifest(9, finished=True))
    assert store.get(KEY) is not None


def test_the_deletion_of_a_predecessor_does_not_drop_a_job() -> None:
    store = Store()
    store.put(manifest(10, uid="2"))
    store.discard(KEY, uid="1")
    assert store.get(KEY) is not None
    store.discard(KEY, uid="2")
    store.discard(KEY, uid="2")
    assert store.get(KEY) is None


def test_an_answer_to_a_write_does_not_bring_a_job_back_that_was_deleted_before_it() -> None:
    store = Store()
    store.put(manifest(10))
    assert store.update(manifest(11))
    assert store.get(KEY) == manifest(11)
    assert not store.update(manifest(12, uid="0"))
    store.discard(KEY, uid="1")
    assert not store.update(manifest(13))
    assert store.get(KEY) is None


def test_an_answer_that_says_that_a_job_has_finished_drops_it() -> None:
    store = Store()
    store.put(manifest(10))
    assert store.update(manifest(11, finished=True))
    assert store.get(KEY) is None


def test_who_manages_which_field_is_not_kept() -> None:
    store = Store()
    store.put(manifest(10, managedFields=["much"]))
    assert store.get(KEY) == manifest(10)


# --- finished jobs that are to be deleted ---------------------------------------------------------------


def expiring(version: int, *, ttl: int = 60, **metadata: Any) -> dict[str, Any]:
    return {
        **manifest(version, finished=True, **metadata),
        "spec": {"ttlSecondsAfterFinished": ttl},
    }


def expiry(store: Store) -> tuple[str, int] | None:
    """Return version and minutes of what is remembered of the finished job."""
    found = store.get_finished(KEY)
    return None if found is None else (found.version, found.expires_at.minute)


def test_a_finished_job_that_is_to_be_deleted_is_news_once() -> None:
    store = Store()
    assert store.put(expiring(10))
    assert not store.put(expiring(10))
    assert expiry(store) == ("10", 1)
    assert len(store) == 0


def test_only_another_time_is_news_but_the_version_is_kept_up_to_date() -> None:
    store = Store()
    store.put(expiring(10))
    assert not store.put(expiring(11))
    assert expiry(store) == ("11", 1)
    assert store.put(expiring(12, ttl=120))
    assert expiry(store) == ("12", 2)
    assert not store.put(expiring(11))  # an old event
    assert expiry(store) == ("12", 2)


@pytest.mark.parametrize(
    "later",
    [manifest(11, finished=True), expiring(11, deletionTimestamp="now"), manifest(3, uid="2")],
    ids=["kept after all", "being deleted", "a successor"],
)
def test_a_finished_job_that_need_not_be_deleted_any_more_is_forgotten(later: dict[str, Any]) -> None:
    store = Store()
    store.put(expiring(10))
    store.put(later)
    assert expiry(store) is None


def test_a_finished_job_that_is_gone_is_forgotten_but_not_its_successor() -> None:
    store = Store()
    store.put(expiring(10, uid="2"))
    store.discard(KEY, uid="1")
    assert expiry(store) == ("10", 1)
    store.discard(KEY, uid="2")
    assert expiry(store) is None


def test_that_a_finished_job_is_to_be_deleted_is_left_to_the_watch_to_tell() -> None:
    store = Store()
    store.put(manifest(10))
    assert store.update(expiring(11))
    assert (store.get(KEY), expiry(store)) == (None, None)
    assert store.put(expiring(11))
    assert expiry(store) == ("11", 1)


# --- parents and children -------------------------------------------------------------------------------

Told = list[tuple[str, str]]
CHILD = ("default", "child")


def child(version: int, *, parent: str = "train", **rest: Any) -> dict[str, Any]:
    body = manifest(version, name="child", **rest)
    return {**body, "spec": {"parent": {"name": parent, "root": "train"}}}


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def store(told: Told) -> Store:
    return Store(told.append)


@pytest.mark.parametrize(
    ("event", "concerned"),
    [
        (manifest(11), False),
        (manifest(11, finished=True), True),
        (manifest(11, deletionTimestamp="now"), True),
        (manifest(11, uid="2"), True),
    ],
    ids=["a change", "its end", "its deletion", "its successor"],
)
def test_children_are_looked_at_when_something_came_of_their_parent(
    event: dict[str, Any], concerned: bool, store: Store, told: Told
) -> None:
    store.put(manifest(10))
    store.put(child(1))
    assert told == []
    store.put(event)
    assert told == ([CHILD] if concerned else [])


def test_children_are_looked_at_when_a_parent_goes_that_had_ended_before(store: Store, told: Told) -> None:
    store.put(child(1))
    store.discard(KEY, uid="1")
    assert told == [CHILD]


def test_a_child_of_another_namespace_is_no_child(store: Store, told: Told) -> None:
    store.put(child(1, namespace="elsewhere"))
    store.discard(KEY, uid="1")
    assert (told, store.has_children(KEY)) == ([], False)


@pytest.mark.parametrize("end", ["finished", "finished by us", "gone"])
def test_a_parent_is_looked_at_when_the_last_of_its_children_has_ended_and_it_waits(
    end: str, store: Store, told: Told
) -> None:
    store.put(child(1))
    store.put(child(2))
    store.put(expiring(10))
    told.clear()
    assert store.has_children(KEY)
    store.put(child(3))
    assert told == []
    match end:
        case "finished":
            store.put(child(4, finished=True))
        case "finished by us":
            store.update(child(4, finished=True))
        case _:
            store.discard(CHILD, uid="1")
    assert told == [KEY]
    assert not store.has_children(KEY)


def test_a_successor_with_another_parent_is_the_child_of_that_one(store: Store) -> None:
    store.put(child(1))
    store.put(child(2, uid="2", parent="other"))
    assert not store.has_children(KEY)
    assert store.has_children(("default", "other"))
    store.put(manifest(3, uid="3", name="child"))
    assert not store.has_children(("default", "other"))


def test_what_was_read_is_worked_on_unless_it_is_known(store: Store, told: Told) -> None:
    async def read() -> AsyncIterator[Manifest]:
        yield manifest(9)
        yield child(1)

    store.put(manifest(10))
    asyncio.run(store.learn("default", read()))
    assert told == [CHILD]


async def ask() -> ParentState | None:
    return None


@pytest.mark.parametrize("event", ["put", "discard", "the last child's end"])
def test_what_the_server_said_of_a_parent_is_good_until_the_watch_tells_more(
    event: str, store: Store
) -> None:
    assert store.share_parent(KEY, ask) is not store.share_parent(KEY, ask)  # it has no children
    store.put(child(1))
    answer = store.share_parent(KEY, ask)
    store.put(child(2))
    assert store.share_parent(KEY, ask) is answer
    match event:
        case "put":
            store.put(manifest(11))
        case "discard":
            store.discard(KEY, uid="1")
        case _:
            store.put(child(3, finished=True))
            store.put(child(4, uid="2"))
    assert store.share_parent(KEY, ask) is not answer
