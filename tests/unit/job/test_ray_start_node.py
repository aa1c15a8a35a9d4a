"""A node of Ray in a pod says the ports of its agents before they do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from ray._private import utils

from fray.job.ray_start_node import write_ports

NODE = "ab" * 28
GIVEN = {
    "metrics_agent_port": 7083,
    "metrics_export_port": 7084,
    "dashboard_agent_listen_port": 7082,
    "runtime_env_agent_port": 7081,
}


def build_node(folder: Path, **parameters: int) -> SimpleNamespace:
    return SimpleNamespace(
        _node_id=NODE,
        _ray_params=SimpleNamespace(**parameters),
        get_session_dir_path=lambda: str(folder),
    )


def read_ports(folder: Path) -> dict[str, int]:
    return {path.name.removesuffix(f"_{NODE}"): int(path.read_text()) for path in folder.iterdir()}


def test_the_files_that_a_raylet_waits_for_are_there_before_it(tmp_path: Path) -> None:
    write_ports(build_node(tmp_path, **GIVEN))
    assert read_ports(tmp_path) == GIVEN


def test_without_the_dashboards_packages_its_agent_has_no_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utils, "get_dashboard_dependency_error", lambda: ImportError("aiohttp"))
    write_ports(build_node(tmp_path, **GIVEN))
    assert read_ports(tmp_path) == {**dict.fromkeys(GIVEN, -1), "runtime_env_agent_port": 7081}


def test_nothing_is_written_where_ray_has_other_names(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        write_ports(build_node(tmp_path))
    assert list(tmp_path.iterdir()) == []
