"""When a cluster that is up is used as it is, and when it has to be made anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from e2e.cluster import kind, local
from e2e.cluster.__main__ import main
from e2e.cluster.api import Response
from e2e.cluster.errors import MachineError
from e2e.cluster.options import Options, Record, derive_fingerprint, describe_reuse, find_fault
from e2e.installation import open_cluster

MADE = Record(Options(cpu_hosts=1, gpu_hosts=2), "these files")


def healthy() -> Mapping[str, bool]:
    return {"control plane runs": True, "node cp runs": True}


def never_asked() -> Mapping[str, bool]:
    raise AssertionError("its health must not matter")


def wanted(**hosts: int) -> Record:
    return replace(MADE, options=Options(**hosts))


@pytest.mark.parametrize(
    ("hosts", "beyond"),
    [
        ({"cpu_hosts": 1, "gpu_hosts": 2}, ""),
        ({"cpu_hosts": 1, "gpu_hosts": 1}, "gpu-1"),
        ({"cpu_hosts": 0, "gpu_hosts": 2}, "cpu-0"),
        ({"cpu_hosts": 0, "gpu_hosts": 0}, "cpu-0, gpu-0, gpu-1"),
    ],
)
def test_a_cluster_with_all_hosts_is_used_and_those_beyond_stay(hosts: dict[str, int], beyond: str) -> None:
    assert find_fault(MADE, wanted(**hosts), healthy) is None
    told = describe_reuse(MADE.options, Options(**hosts))
    more = f", with hosts beyond those asked for, which stay: {beyond}" if beyond else ""
    assert told == f"the cluster is up already{more}"


@pytest.mark.parametrize(
    ("hosts", "lacking"),
    [({"cpu_hosts": 2, "gpu_hosts": 2}, "cpu-1"), ({"cpu_hosts": 0, "gpu_hosts": 4}, "gpu-2, gpu-3")],
)
def test_a_cluster_that_lacks_hosts_is_made_anew_and_they_are_named(
    hosts: dict[str, int], lacking: str
) -> None:
    assert find_fault(MADE, wanted(**hosts), never_asked) == f"it has no {lacking}"


def test_other_versions_make_it_anew() -> None:
    fault = find_fault(MADE, replace(MADE, fingerprint="other files"), never_asked)
    assert fault == "other versions of its parts or of these files made it"


def test_a_cluster_of_another_skew_is_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    skews = ("", "jobset-older", "jobset-lowest", "lowest,jobset-lowest")
    fingerprints = set()
    for skew in skews:
        monkeypatch.setenv("FRAY_SKEW", skew)
        fingerprints.add(derive_fingerprint())
    assert len(fingerprints) == len(skews)


def test_what_is_broken_is_named() -> None:
    fault = find_fault(MADE, MADE, lambda: {"control plane runs": True, "node cp runs": False})
    assert fault == "this is no longer true of it: node cp runs"


def test_a_cluster_that_does_not_answer_is_made_anew() -> None:
    def fail() -> Mapping[str, bool]:
        raise MachineError("no route", "look at it")

    assert find_fault(MADE, MADE, fail) == "it doesn't answer: no route: look at it"


def test_a_record_survives_being_written() -> None:
    assert Record.from_json(MADE.to_json()) == MADE


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"options": {"cpus": 1}, "fingerprint": "x"}', '"x"'])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own error is one, with its own words
        Record.from_json(text)


def test_tests_and_people_ask_for_the_same_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []

    def note(options: Options, **_: Any) -> Path:
        asked.append(options)
        raise MachineError("not here", "stop")

    monkeypatch.setattr("e2e.cluster.provider.up", note)
    with pytest.raises(MachineError):
        open_cluster(print)
    assert main(["up"]) == 1
    assert main(["up", "--gpu-hosts=0", "--cpu-hosts=1"]) == 1
    assert asked == [Options(), Options(), Options(cpu_hosts=1, gpu_hosts=0)]


class Machine:
    """The provider `local` with its effects noted instead of done."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.said: list[str] = []
        self.ready = folder / "ready.json"
        nothing = ("require_root", "install_node_packages", "module_source", "fetch_busybox", "build")
        for name in nothing:
            monkeypatch.setattr(local, name, lambda *_, **__: {})
        monkeypatch.setattr(local, "LOCK", folder / "lock")
        monkeypatch.setattr(local, "_READY", self.ready)
        monkeypatch.setattr(local, "derive_fingerprint", lambda: "these files")
        monkeypatch.setattr(local, "observe_health", healthy)
        monkeypatch.setattr(local, "_copy_kubeconfig", lambda: local.KUBECONFIG)
        monkeypatch.setattr(local, "_remove", lambda **_: self._note("removed"))
        monkeypatch.setattr(local, "_create", lambda layout, *_: self._note(f"{len(layout.hosts)} hosts"))

    def up(self, **hosts: int) -> list[str]:
        """What is done by one `up`."""
        self.done.clear()
        self.said.clear()
        local.up(Options(**hosts), progress=self.said.append)
        return list(self.done)

    def _note(self, what: str) -> None:
        self.done.append(what)
        if what == "removed":
            self.ready.unlink(missing_ok=True)


def test_up_removes_nothing_because_fewer_hosts_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch)
    assert machine.up() == ["removed", "7 hosts"]
    assert machine.up(gpu_hosts=0) == []
    assert machine.said == [
        "the cluster is up already, with hosts beyond those asked for, which stay: gpu-0, gpu-1"
    ]
    assert len(local.current_layout().hosts) == 7
    assert machine.up(cpu_hosts=1) == ["removed", "8 hosts"]
    assert machine.said[0] == "removing the cluster that there is: it has no cpu-0"
    assert machine.up() == []
    machine.ready.write_text("damaged")
    assert machine.up() == ["removed", "7 hosts"]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"data": {"record": MADE.to_json()}}, MADE),
        (404, {"kind": "Status"}, None),
        (200, {"data": {"options": "{}"}}, None),
        (200, {}, None),
    ],
)
def test_kind_finds_its_record_in_the_cluster(
    status: int, body: dict[str, Any], expected: Record | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Mock()
    api.get.return_value = Response(status, body)
    monkeypatch.setattr(kind, "connect", lambda: api)
    assert kind._read_record() == expected


def test_kind_without_a_cluster_has_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "connect", Mock(side_effect=MachineError("no kind cluster is up", "up")))
    assert kind._read_record() is None
