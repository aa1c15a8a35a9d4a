"""What is shown of an actor: its state, how long it lives, and where its lines are."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fray.cli.actor_commands import ActorLogRequest, print_actor_logs
from fray.cli.actor_story import describe_actor, format_actor_table
from fray.cli.streams import OutputStream
from fray.cluster.local_cluster import LocalCluster
from fray.errors import InvalidRequestError
from fray.wire.frayactor import FrayActor

NOW = datetime(2026, 1, 2, tzinfo=UTC)
READY = {"index": 0, "ready": True}
STARTING = {"index": 1}
ENDED = {"index": 2, "ended": True, "message": "it has ended itself"}
FAILED = {"index": 3, "failed": True}


def build(*members: dict[str, Any], **spec: Any) -> FrayActor:
    """Return an actor with these members, which the operator has seen."""
    return FrayActor.from_manifest(
        {
            "metadata": {"name": "buffer"},
            "spec": {"name": "train/buffer", "entrypoint": {"class": "app:Buffer"}, **spec},
            "status": {"members": list(members)},
        }
    )


@pytest.mark.parametrize(
    ("members", "state"),
    [
        ([READY], "Ready"),
        ([READY, STARTING], "Starting"),
        ([READY, ENDED], "Ready"),
        ([STARTING, ENDED], "Starting"),
        ([ENDED], "Ended"),
        ([READY, ENDED, FAILED], "Failed"),
        ([], "Starting"),
    ],
)
def test_the_state_of_an_actor_is_that_of_the_members_that_are_to_live(
    members: list[dict[str, Any]], state: str
) -> None:
    found = build(*members)
    assert describe_actor(found, now=NOW)[0].text.split() == ["buffer", state]
    table = [line.text.split()[3] for line in format_actor_table([found], now=NOW)[1:] if members]
    words = {"ready": "Ready", "ended": "Ended", "failed": "Failed"}
    expected = [next((words[key] for key in words if each.get(key)), "Starting") for each in members]
    assert table == expected


@pytest.mark.parametrize(
    ("spec", "lifetime"),
    [
        ({}, "until it is deleted or stopped"),
        ({"idleSeconds": 60}, "until it is deleted or stopped, or after 60 s without a call"),
        ({"lifetime": "job", "rootJob": "train"}, "ends with job train"),
        (
            {"lifetime": "job", "rootJob": "train", "idleSeconds": 5},
            "ends with job train, or after 5 s without a call",
        ),
    ],
)
def test_an_actor_is_described_with_what_ends_it(spec: dict[str, Any], lifetime: str) -> None:
    (line,) = [line.text for line in describe_actor(build(**spec), now=NOW) if "lifetime" in line.text]
    assert line.split(maxsplit=1)[1] == lifetime


def test_the_lines_of_a_hosted_actor_are_those_of_its_process(tmp_path: Path) -> None:
    hosted = {"pod": "train-0", "podUid": "p1", "server": "0123456789abcdef"}
    found = build(entrypoint={"hosted": hosted})
    output = OutputStream(1, environ={})
    with pytest.raises(InvalidRequestError, match="a process of train-0, which prints its lines"):
        print_actor_logs(ActorLogRequest(), found, cluster=LocalCluster(tmp_path), output=output)
