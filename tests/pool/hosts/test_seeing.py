"""The timeline of a pool on several hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.job.options import ActorOptions
from fray.job.pool_owner import LocalOwner
from tests.pool.hosts.pools import Hosts, on, store
from tests.pool.seeing.trace_format import check_trace, read_runs


class Adder:
    """An actor."""

    def add(self, number: int) -> int:
        return number + 1


def test_a_timeline_has_the_runs_of_all_hosts(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = hosts.context
    monkeypatch.setattr(context._engine, "_owner", LocalOwner(hosts.pool))
    for place in ("a", "b", "driver"):
        hosts.get(context.run(store, options=on(place, name=f"on {place}")))
    adder = context.create_actor(Adder, options=ActorOptions(resources={"b": 1}))
    assert hosts.get(adder.add(1)) == 2
    context.save_timeline(tmp_path / "trace.json")
    trace = check_trace(tmp_path / "trace.json")
    workers = {
        event["pid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "process_name"
    }
    for place in ("a", "b"):
        (run,) = read_runs(trace, f"on {place}")
        assert workers[run["pid"]].endswith(f" on {place}")
        assert run["dur"] >= 0
    (local,) = read_runs(trace, "on driver")
    assert not workers[local["pid"]].endswith((" on a", " on b"))
    (call,) = read_runs(trace, "Adder.add")
    assert workers[call["pid"]].endswith(" on b")
