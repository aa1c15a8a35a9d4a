"""How the starts of a member are counted: in its pod, in later ones, and where an answer was lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fray.errors import ActorReplacedError
from fray.kube.errors import UnreachableError
from fray.runtime.actors.identity import ActorPod, Member
from fray.runtime.actors.record import MemberRecord, RecordWriter, derive_start
from fray.runtime.api.client import ApiClient
from fray.runtime.pool.transport.addresses import Address
from fray.testing import FakeCluster
from tests.fake_pods import access_of_pod

MEMBER = Member("counter", "counter", "u1")
ADDRESS = Address(host="10.0.0.1", port=7000)
NEW = MemberRecord("p2", 0, str(ADDRESS))


@pytest.mark.parametrize(
    ("found", "limit", "start", "restarts", "exhausted"),
    [
        (None, 0, 1, 0, False),
        (MemberRecord("p2", 1, "tcp:a:1", ready=True), None, 2, 1, False),
        (MemberRecord("p2", 1, "tcp:a:1"), 0, 1, 0, True),
        (MemberRecord("p2", 3, "tcp:a:1", restarts=4), 4, 3, 4, True),
        (MemberRecord("p1", 3, "tcp:a:1", restarts=2), 3, 1, 3, False),
        (MemberRecord("p1", 3, "tcp:a:1", restarts=3), 3, 0, 3, True),
    ],
)
def test_what_a_start_is(
    found: MemberRecord | None, limit: int | None, start: int, restarts: int, *, exhausted: bool
) -> None:
    if found is not None:
        found = replace(found, idle=True)  # which a start ends
    expected = MemberRecord("p2", start, str(ADDRESS), restarts, exhausted=exhausted)
    assert derive_start(found, NEW, limit) == expected


@pytest.mark.parametrize("pod", ["p1", "p2"])
def test_one_that_has_ended_for_good_is_not_started_in_its_pod_nor_in_another(pod: str) -> None:
    found = MemberRecord(pod, 3, "tcp:a:1", restarts=2, ended="it has ended itself")
    assert MemberRecord.from_data(found.to_data()) == found
    later = derive_start(found, NEW, None)
    assert (later.pod_uid, later.restarts, later.ended) == ("p2", 2, found.ended)
    assert later.start == (3 if pod == "p2" else 0)


@pytest.mark.parametrize(
    ("failures", "retries", "gave_up"),
    [(0, 0, False), (1, 0, True), (1, 1, False), (2, 1, True), (9, -1, False)],
)
def test_a_constructor_is_waited_for_until_it_has_failed_once_more_than_it_may(
    failures: int, retries: int, *, gave_up: bool
) -> None:
    record = MemberRecord("p1", 1, "tcp:a:1", failures=failures)
    read = MemberRecord.from_data(record.to_data())
    assert read == record
    assert read.gave_up(retries) is gave_up
    # Its successor is judged by what all of them did.
    assert derive_start(record, NEW, None).gave_up(retries) is gave_up
    assert not MemberRecord("p1", 1, "tcp:a:1", ready=True, failures=failures).gave_up(retries)


class LosesAnswers(ApiClient):
    """Carries out a patch, and loses the answer where `losing`."""

    losing = False

    def patch(self, *args: Any, **more: Any) -> dict[str, Any]:
        made = super().patch(*args, **more)
        if self.losing:
            raise UnreachableError("PATCH", 0, "Lost", "no answer")
        return made


def test_starts_are_counted_once_and_an_earlier_pod_takes_no_place_back() -> None:
    with FakeCluster() as cluster:
        api = LosesAnswers(access_of_pod(cluster))
        first, second = (
            RecordWriter(api, ActorPod(MEMBER, pod, "10.0.0.1", Path(), max_restarts=1), ADDRESS)
            for pod in ("p1", "p2")
        )
        assert first.begin().start == 1
        api.losing = True
        with pytest.raises(UnreachableError):
            second.begin()
        api.losing = False
        begun = second.begin()
        assert (begun.start, begun.restarts, begun.exhausted) == (1, 1, False)
        with pytest.raises(ActorReplacedError):
            first.begin()
        assert second.begin().exhausted
