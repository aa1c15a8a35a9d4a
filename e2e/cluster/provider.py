"""Which of the two ways to have a test cluster is taken, and that cluster whichever it is.

Tests use this module only: hosts have the names of their nodes, and `supported_faults` says what can be done
to them. How a cluster is made is in `local` and `kind`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol, get_args

from e2e.cluster import kind, local
from e2e.cluster.api import Api
from e2e.cluster.docker_engine import observe_engine
from e2e.cluster.errors import ClusterError, MachineError
from e2e.cluster.layout import Host, Layout
from e2e.cluster.options import Options
from e2e.cluster.paths import KUBECONFIG

__all__ = [
    "SETTING",
    "Fault",
    "Options",
    "ProviderName",
    "choose_provider",
    "connect",
    "crash_host",
    "current_layout",
    "current_provider",
    "down",
    "import_images",
    "install_kueue",
    "observe_health",
    "restart_apiserver",
    "restore_host",
    "set_fake_nodes",
    "supported_faults",
    "up",
]

ProviderName = Literal["kind", "local"]
Fault = Literal["crash-host", "fake-nodes", "kill-program", "restart-apiserver"]
"""A host without power, hosts that KWOK imitates, the end of one program of a host by `cgroups`, an apiserver
that is killed and started again."""

SETTING = "FRAY_CLUSTER_PROVIDER"
"""The environment variable that names the provider."""

_FAULTS: Mapping[ProviderName, frozenset[Fault]] = {
    "kind": frozenset({"crash-host"}),
    "local": frozenset({"crash-host", "fake-nodes", "kill-program", "restart-apiserver"}),
}
_MEMORY = KUBECONFIG.with_name("provider")
"""The provider of the cluster that this checkout's kubeconfig leads to."""


class _Provider(Protocol):
    def up(self, options: Options, *, progress: Callable[[str], None]) -> Path: ...
    def down(self, *, progress: Callable[[str], None]) -> None: ...
    def connect(self) -> Api: ...
    def current_layout(self) -> Layout: ...
    def observe_health(self) -> dict[str, bool]: ...
    def set_fake_nodes(self, *, tpu_pools: int, cpu_nodes: int, progress: Callable[[str], None]) -> None: ...
    def install_kueue(self, *, progress: Callable[[str], None]) -> None: ...
    def crash_host(self, host: Host) -> None: ...
    def restore_host(self, host: Host) -> None: ...
    def restart_apiserver(self) -> None: ...
    def import_images(self, archives: Sequence[Path], *, hosts: Sequence[Host] | None) -> None: ...


_PROVIDERS: Mapping[ProviderName, _Provider] = {"kind": kind, "local": local}


def choose_provider(*, wanted: str, remembered: str | None, has_engine: Callable[[], bool]) -> ProviderName:
    """The provider that is named, else that of the cluster there is, else kind where an engine can run it.

    Parameters: `wanted` the value of `SETTING`, empty when unset; `remembered` what an earlier `up` took;
    `has_engine` asks for a container engine, and is only called when that decides.
    Raises MachineError for a name that no provider has.
    """
    names: tuple[ProviderName, ...] = get_args(ProviderName)
    for name in names:
        if wanted == name:
            return name
    if wanted:
        raise MachineError(f"{SETTING} is {wanted!r}", f"set it to {' or '.join(names)}, or unset it")
    for name in names:
        if remembered == name:
            return name
    return "kind" if has_engine() else "local"


def current_provider() -> ProviderName:
    """The provider that all functions here use now. Raises MachineError when the setting is wrong."""
    return choose_provider(
        wanted=os.environ.get(SETTING, ""),
        remembered=_remembered(),
        has_engine=lambda: observe_engine() is not None,
    )


def supported_faults() -> frozenset[Fault]:
    """What tests can do to the cluster."""
    return _FAULTS[current_provider()]


def up(options: Options, *, progress: Callable[[str], None] = print) -> Path:
    """Make the cluster, or find it healthy, of the same versions and with all hosts; returns the kubeconfig.

    One with more hosts than asked for is used as it is. A cluster of the other provider that this checkout
    had is removed first. Raises ClusterError, ValueError.
    """
    name = current_provider()
    for other in _PROVIDERS:
        if other == _remembered() != name:
            progress(f"removing the cluster of the provider {other}")
            try:
                _remove(other, progress)
            except ClusterError as error:
                # Without its engine a cluster of kind can't be removed; another must be possible anyway.
                progress(f"it stays: {error}")
    progress(f"provider: {name}")
    before = _remembered()
    _remember(name)  # first, so that `down` finds even what a killed `up` leaves
    try:
        return _PROVIDERS[name].up(options, progress=progress)
    except Exception:
        _remember(before)
        raise


def down(*, progress: Callable[[str], None] = print) -> None:
    """Remove the cluster and every trace of it; harmless when there is none. Raises ClusterError."""
    _remove(current_provider(), progress)


def connect() -> Api:
    """An administrator's client of the cluster that is up. Raises MachineError when there is none."""
    return _current().connect()


def current_layout() -> Layout:
    """The hosts of the cluster that is up, named as their nodes. Raises MachineError when there is none."""
    return _current().current_layout()


def observe_health() -> dict[str, bool]:
    """Which things of the cluster work, by name. Raises MachineError when no cluster is up."""
    return _current().observe_health()


def set_fake_nodes(*, tpu_pools: int, cpu_nodes: int, progress: Callable[[str], None] = print) -> None:
    """Give the cluster exactly so many fake nodes, all Ready on return (fault `fake-nodes`).

    Raises ClusterError.
    """
    _current().set_fake_nodes(tpu_pools=tpu_pools, cpu_nodes=cpu_nodes, progress=progress)


def install_kueue(*, progress: Callable[[str], None] = print) -> None:
    """Give the running cluster Kueue, for namespaces with `kueue.NAMESPACE_LABEL`; harmless when it has it.

    It stays until the cluster is removed. Raises ClusterError.
    """
    _current().install_kueue(progress=progress)


def crash_host(host: Host) -> None:
    """Take a host away as a power failure does (fault `crash-host`). Raises ClusterError."""
    _current().crash_host(host)


def restore_host(host: Host) -> None:
    """Start a host that was crashed again; returns once its node is Ready with its chips.

    Raises ClusterError.
    """
    _current().restore_host(host)


def restart_apiserver() -> None:
    """Kill the apiserver and start it again (fault `restart-apiserver`); returns once it is ready.

    Raises ClusterError.
    """
    _current().restart_apiserver()


def import_images(archives: Sequence[Path], *, hosts: Sequence[Host] | None = None) -> None:
    """Import docker-archive files into all hosts of the running cluster, or into those given.

    Pods then name the images as they are tagged in the archives. Raises ClusterError.
    """
    _current().import_images(archives, hosts=hosts)


def _current() -> _Provider:
    return _PROVIDERS[current_provider()]


def _remembered() -> str | None:
    try:
        return _MEMORY.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _remember(name: str | None) -> None:
    if name is not None:
        _MEMORY.parent.mkdir(parents=True, exist_ok=True)
        _MEMORY.write_text(name, encoding="utf-8")
        return
    _MEMORY.unlink(missing_ok=True)
    with suppress(OSError):  # not there, or it holds something else too
        _MEMORY.parent.rmdir()


def _remove(name: ProviderName, progress: Callable[[str], None]) -> None:
    _PROVIDERS[name].down(progress=progress)
    if _remembered() == name:
        _remember(None)
