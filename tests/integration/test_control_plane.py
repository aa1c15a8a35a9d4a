"""The control plane of the integration tests serves, shares the machine and leaves nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from e2e.cluster import toolchain
from e2e.cluster.build import CONTROL_PLANE, Binaries, build
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.errors import ControlPlaneError, GoToolchainError, UnknownProgramError
from e2e.cluster.kubeconfig import CONTEXT

# The first run on a machine compiles the two programs.
pytestmark = pytest.mark.timeout(900)

_REPOSITORY = Path(__file__).parents[2]
_OWNER = """
import json, os, signal, sys
from e2e.cluster.build import CONTROL_PLANE, build
from e2e.cluster.controlplane import ControlPlane

endpoint = ControlPlane(build(CONTROL_PLANE)).start()
forked = os.fork() if "fork" in sys.argv else None
if forked != 0:
    pids = [endpoint.process_pid, endpoint.apiserver_pid, endpoint.etcd_pid]
    print(json.dumps([pids, str(endpoint.directory), forked]), flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def binaries() -> Binaries:
    return build(CONTROL_PLANE)


@pytest.fixture(scope="module")
def control_plane(binaries: Binaries) -> Iterator[ControlPlane]:
    with ControlPlane(binaries) as running:
        yield running


def await_end_of_process(pid: int, seconds: float = 120.0) -> None:
    """Return when no process `pid` exists any more."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([descriptor], [], [], seconds)
    finally:
        os.close(descriptor)
    assert ended, f"process {pid} is still there"


def start_owner(*arguments: str) -> tuple[subprocess.Popen[str], list[int], Path, int | None]:
    """Another process that owns a control plane: itself, the three pids, the directory, its fork."""
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, *arguments], cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pids, directory, forked = json.loads(owner.stdout.readline())
    return owner, pids, Path(directory), forked


def test_the_official_client_can_use_the_kubeconfig(control_plane: ControlPlane) -> None:
    assert yaml.safe_load(control_plane.kubeconfig.read_text())["current-context"] == CONTEXT
    api_client = config.new_client_from_config(str(control_plane.kubeconfig), context=CONTEXT)
    try:
        names = {item.metadata.name for item in client.CoreV1Api(api_client).list_namespace().items}
    finally:
        api_client.close()
    assert "default" in names


def test_the_kubeconfig_is_readable_by_its_owner_only(control_plane: ControlPlane) -> None:
    assert control_plane.kubeconfig.stat().st_mode & 0o077 == 0


def test_objects_are_created_applied_patched_and_deleted(control_plane: ControlPlane) -> None:
    api = control_plane.api()
    assert api.post("/api/v1/namespaces", {"metadata": {"name": "first"}}).status == 201
    path = "/api/v1/namespaces/first/configmaps"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    assert api.apply(f"{path}/c", applied, field_manager="test").status == 201
    assert api.merge(f"{path}/c", {"data": {"b": "2"}}).ok
    assert api.patch(f"{path}/c", [{"op": "replace", "path": "/data/a", "value": "3"}]).ok
    status, body = api.get(path, fieldSelector="metadata.name=c")
    assert (status, body["items"][0]["data"]) == (200, {"a": "3", "b": "2"})
    assert api.delete(f"{path}/c").ok
    assert api.get(f"{path}/c").status == 404


def test_a_typo_in_a_created_object_is_refused(control_plane: ControlPlane) -> None:
    status, body = control_plane.api().post("/api/v1/namespaces", {"metadata": {"name": "x"}, "spek": {}})
    assert (status, body["reason"]) == (400, "BadRequest")


def test_roles_are_enforced_for_service_account_tokens(control_plane: ControlPlane) -> None:
    api = control_plane.api()
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert api.post(accounts, {"metadata": {"name": "nobody"}}).status == 201
    status, body = api.post(f"{accounts}/nobody/token", {"spec": {}})
    assert status == 201
    weak = control_plane.api(token=body["status"]["token"])
    assert weak.get("/api/v1/namespaces/default/secrets").status == 403
    assert control_plane.api(token="wrong").get("/api/v1/namespaces").status == 401


def test_a_second_one_runs_beside_the_first_and_shares_nothing(
    control_plane: ControlPlane, binaries: Binaries
) -> None:
    with ControlPlane(binaries) as second:
        assert second.url != control_plane.url
        assert second.api().post("/api/v1/namespaces", {"metadata": {"name": "only-second"}}).status == 201
        assert control_plane.api().get("/api/v1/namespaces/only-second").status == 404
        directory = second.endpoint.directory
        pids = [second.endpoint.apiserver_pid, second.endpoint.etcd_pid]
    assert not directory.exists()
    for pid in pids:
        await_end_of_process(pid)
    assert control_plane.api().get("/readyz").ok


def test_nothing_remains_when_the_owner_is_killed() -> None:
    owner, pids, directory, _ = start_owner()
    with owner:
        owner.kill()
        for pid in pids:
            await_end_of_process(pid)
        assert not directory.exists()


def test_nothing_remains_when_the_owner_is_killed_and_its_fork_lives_on() -> None:
    owner, pids, directory, forked = start_owner("fork")
    assert forked is not None
    with owner:
        try:
            owner.kill()
            for pid in pids:
                await_end_of_process(pid)
            assert not directory.exists()
        finally:
            os.kill(forked, signal.SIGKILL)


def test_servers_die_with_their_process_and_the_next_start_removes_the_directory(binaries: Binaries) -> None:
    owner, (process, *servers), directory, _ = start_owner()
    with owner:
        try:
            os.kill(process, signal.SIGKILL)
            for pid in servers:
                await_end_of_process(pid)
        finally:
            owner.kill()
    assert directory.exists()
    with ControlPlane(binaries):
        assert not directory.exists()


def test_a_server_that_ended_by_itself_is_reported(binaries: Binaries) -> None:
    running = ControlPlane(binaries)
    directory = running.start().directory
    os.kill(running.endpoint.etcd_pid, signal.SIGKILL)
    await_end_of_process(running.endpoint.process_pid)
    with pytest.raises(ControlPlaneError, match="had ended before"):
        running.stop()
    assert not directory.exists()


def test_a_start_that_fails_says_what_the_server_said(binaries: Binaries, tmp_path: Path) -> None:
    broken = tmp_path / "etcd"
    broken.write_text("#!/bin/sh\necho no space left on device >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ControlPlaneError, match="etcd ended with exit code 3") as caught:
        ControlPlane({**binaries, "etcd": broken}).start()
    assert caught.value.log_tail == "etcd: no space left on device"


def test_a_missing_program_is_a_typed_error(binaries: Binaries, tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="does not start"):
        ControlPlane({**binaries, "kube-apiserver": tmp_path / "gone"}).start()


def test_using_one_that_does_not_run_is_a_typed_error(binaries: Binaries) -> None:
    with pytest.raises(ControlPlaneError, match="not running"):
        ControlPlane(binaries).api()


def test_programs_that_are_built_need_no_go(binaries: Binaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert build(["apiserver", "etcd"], progress=pytest.fail) == binaries


def test_building_without_go_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GoToolchainError, match=r"Install Go 1\.21"):
        build(["etcd"], root=tmp_path, progress=lambda _: None)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


def test_an_old_go_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    old.chmod(0o755)
    with pytest.raises(GoToolchainError, match=r"is Go 1\.19"):
        toolchain.find_go({"PATH": str(tmp_path)})


def test_an_unknown_program_lists_the_known_ones() -> None:
    with pytest.raises(UnknownProgramError, match="etcd"):
        build(["kube-apisrever"])
