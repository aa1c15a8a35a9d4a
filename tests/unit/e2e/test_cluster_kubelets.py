"""Finding the processes of a pod by its control group, ending those of one program, and holding a kubelet."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.cluster import cgroups, kubelets
from e2e.cluster.daemons import is_held
from e2e.cluster.layout import build_layout

HOST = build_layout().control_plane


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control-group file system of version 2, as far as files can imitate one."""
    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(cgroups, "_MOUNT", tmp_path)
    return tmp_path


def put(group: Path, *pids: int) -> None:
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


@contextmanager
def program(word: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "input()", word]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.kill()


def test_the_processes_of_a_pod_are_those_of_its_containers(mount: Path) -> None:
    pods = mount / "fray" / "pods" / HOST.name / "kubepods" / "burstable"
    put(pods / "podaaa" / "container", 11, 12)
    put(pods / "podaaa" / "sandbox", 13)
    put(pods / "podaaa-b" / "container", 14)
    assert sorted(cgroups.pids_in_pod(HOST.name, "aaa")) == [11, 12, 13]
    assert cgroups.pids_in_pod(HOST.name, "ccc") == []
    assert cgroups.pids_in_pod("elsewhere", "aaa") == []


def test_only_the_named_program_of_a_pod_is_ended(mount: Path) -> None:
    with program("fray_operator") as operator, program("pause") as sandbox:
        group = mount / "fray" / "pods" / HOST.name / "podaaa"
        put(group, sandbox.pid, operator.pid)
        assert kubelets.kill_in_pod(HOST, "aaa", "fray_operator")
        assert operator.wait(90) == -9
        assert sandbox.poll() is None
        assert not kubelets.kill_in_pod(HOST, "aaa", "absent")


def test_a_kubelet_is_held_and_let_go(mount: Path) -> None:
    with program("kubelet") as kubelet:
        put(mount / "fray" / "daemons" / HOST.name / "kubelet", kubelet.pid)
        kubelets.freeze_kubelet(HOST)
        _, status = os.waitpid(kubelet.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert is_held(kubelet.pid)
        kubelets.thaw_kubelet(HOST)
        _, status = os.waitpid(kubelet.pid, os.WCONTINUED)
        assert os.WIFCONTINUED(status)
        assert not is_held(kubelet.pid)
        kubelets.thaw_kubelet(HOST)
        assert kubelet.poll() is None
    assert not is_held(kubelet.pid)
