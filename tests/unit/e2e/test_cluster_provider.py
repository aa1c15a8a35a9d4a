"""Which provider of the test cluster is taken, and that both can be used in the same way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from e2e.cluster import docker_engine, kind, local, provider
from e2e.cluster.errors import CommandError, MachineError
from e2e.cluster.layout import build_layout
from e2e.cluster.provider import Options, ProviderName, choose_provider
from e2e.cluster.toolchain import Platform


def never_asked() -> bool:
    raise AssertionError("the engine must not be asked")


@pytest.mark.parametrize("wanted", ["kind", "local"])
@pytest.mark.parametrize("remembered", [None, "kind", "local"])
def test_the_setting_decides_alone(wanted: str, remembered: str | None) -> None:
    assert choose_provider(wanted=wanted, remembered=remembered, has_engine=never_asked) == wanted


@pytest.mark.parametrize("remembered", ["kind", "local"])
def test_without_a_setting_the_cluster_that_is_there_stays_in_use(remembered: str) -> None:
    assert choose_provider(wanted="", remembered=remembered, has_engine=never_asked) == remembered


@pytest.mark.parametrize(("has_engine", "expected"), [(True, "kind"), (False, "local")])
@pytest.mark.parametrize("remembered", [None, "", "something of a later version"])
def test_else_kind_is_taken_where_an_engine_can_run_it(
    remembered: str | None, has_engine: bool, expected: str
) -> None:
    assert choose_provider(wanted="", remembered=remembered, has_engine=lambda: has_engine) == expected


def test_a_setting_that_names_no_provider_says_which_there_are() -> None:
    with pytest.raises(MachineError, match=r"FRAY_CLUSTER_PROVIDER is 'minikube': set it to kind or local"):
        choose_provider(wanted="minikube", remembered="kind", has_engine=never_asked)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("linux amd64\n", Platform("linux", "amd64")), ("windows amd64\n", None), ("\n", None)],
)
def test_only_an_engine_that_runs_linux_counts(
    monkeypatch: pytest.MonkeyPatch, answer: str, expected: Platform | None
) -> None:
    monkeypatch.setattr(docker_engine, "run", Mock(return_value=answer))
    assert docker_engine.observe_engine() == expected


def test_a_client_without_an_engine_is_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], timeout: float) -> str:
        raise CommandError(tuple(command), 1, "Cannot connect to the Docker daemon")

    monkeypatch.setattr(docker_engine, "run", fail)
    assert docker_engine.observe_engine() is None


@pytest.mark.parametrize(
    "name",
    [
        *("up", "down", "connect", "current_layout", "observe_health", "set_fake_nodes", "install_kueue"),
        *("crash_host", "restore_host", "import_images"),
    ],
)
def test_every_function_has_the_same_signature_in_all_providers(name: str) -> None:
    signatures = {inspect.signature(getattr(module, name)) for module in (provider, kind, local)}
    assert len(signatures) == 1


class Recorder:
    """A provider that only notes what is asked of it; with `works` false, nothing can be done."""

    def __init__(self, name: str, calls: list[str], *, works: bool = True) -> None:
        self.name = name
        self.calls = calls
        self.works = works

    def up(self, options: Options, *, progress: Callable[[str], None]) -> Path:
        progress(f"{self.name} with {options}")
        self._note("up")
        return provider.KUBECONFIG

    def down(self, *, progress: Callable[[str], None]) -> None:
        progress(f"{self.name} goes")
        self._note("down")

    def _note(self, what: str) -> None:
        self.calls.append(f"{self.name} {what}")
        if not self.works:
            raise MachineError("no engine", "start it")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of two providers that only note it; no engine answers."""
    made: list[str] = []
    folder = tmp_path / "cluster"
    folder.mkdir()
    providers = {name: Recorder(name, made) for name in ("kind", "local")}
    monkeypatch.setattr(provider, "_PROVIDERS", providers)
    monkeypatch.setattr(provider, "_MEMORY", folder / "provider")
    monkeypatch.setattr(provider, "observe_engine", lambda: None)
    monkeypatch.delenv(provider.SETTING, raising=False)
    return made


def set_wanted(monkeypatch: pytest.MonkeyPatch, name: ProviderName) -> None:
    monkeypatch.setenv(provider.SETTING, name)


def test_down_without_a_setting_removes_the_cluster_that_a_setting_made(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_wanted(monkeypatch, "kind")
    provider.up(Options())
    monkeypatch.delenv(provider.SETTING)
    assert provider.supported_faults() == {"crash-host"}
    provider.down()
    assert calls == ["kind up", "kind down"]
    assert provider.supported_faults() == {"crash-host", "fake-nodes", "kill-program", "restart-apiserver"}


def test_another_provider_takes_the_place_of_the_first(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_wanted(monkeypatch, "kind")
    provider.up(Options())
    set_wanted(monkeypatch, "local")
    provider.up(Options())
    provider.up(Options())
    assert calls == ["kind up", "kind down", "local up", "local up"]


def test_a_cluster_whose_engine_is_gone_is_not_in_the_way_of_another(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_wanted(monkeypatch, "kind")
    provider.up(Options())
    monkeypatch.setattr(provider._PROVIDERS["kind"], "works", False)
    set_wanted(monkeypatch, "local")
    said: list[str] = []
    provider.up(Options(), progress=said.append)
    assert calls == ["kind up", "kind down", "local up"]
    assert "it stays: no engine: start it" in said


def test_a_failed_up_changes_nothing_about_the_choice(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider._PROVIDERS["kind"], "works", False)
    set_wanted(monkeypatch, "kind")
    with pytest.raises(MachineError):
        provider.up(Options())
    monkeypatch.delenv(provider.SETTING)
    assert provider.current_provider() == "local"
    assert calls == ["kind up"]


def test_a_killed_up_is_found_by_down(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def die(options: Options, *, progress: Callable[[str], None]) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(provider._PROVIDERS["kind"], "up", die)
    set_wanted(monkeypatch, "kind")
    with pytest.raises(KeyboardInterrupt):
        provider.up(Options())
    monkeypatch.delenv(provider.SETTING)
    provider.down()
    assert calls == ["kind down"]


def test_kind_says_that_it_has_no_fake_nodes() -> None:
    with pytest.raises(MachineError, match="FRAY_CLUSTER_PROVIDER=local"):
        kind.set_fake_nodes(tpu_pools=1, cpu_nodes=0)


def test_a_node_pool_is_found_by_its_name() -> None:
    layout = build_layout(gpu_hosts=1)
    assert [host.name for host in layout.pool("tpu-b")] == ["tpu-b-0", "tpu-b-1"]
    with pytest.raises(KeyError, match="there are: default-pool, gpu, tpu-a, tpu-b"):
        layout.pool("tpu-c")
