"""`python -m fray.job.ray_start_node start ...`: `ray start` in a pod, whose raylet waits for no agent.

A raylet waits for files in which the agents beside it say their ports, and ends if they take longer than
15 s: node_manager.cc of Ray 2.60, where nothing changes the time. On a busy node they do, since they import a
lot. In pods all ports are given, so the files are there first.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any, Final

__all__ = ["main", "write_ports"]

PORTS: Final = {
    "METRICS_AGENT_PORT_NAME": "metrics_agent_port",
    "METRICS_EXPORT_PORT_NAME": "metrics_export_port",
    "DASHBOARD_AGENT_LISTEN_PORT_NAME": "dashboard_agent_listen_port",
    "RUNTIME_ENV_AGENT_PORT_NAME": "runtime_env_agent_port",
}
"""Ray's name for the part of a file's name -> the parameter of a node that has the port."""


def main() -> None:
    """Be `ray`, with the arguments of this process."""
    scripts, node = import_module("ray.scripts.scripts"), import_module("ray._private.node").Node
    start = node.start_ray_processes

    def start_with_ports(self: Any) -> None:
        # Without it Ray starts as ever: another version may have other names.
        with contextlib.suppress(AttributeError):
            write_ports(self)
        start(self)

    node.start_ray_processes = start_with_ports
    scripts.main()


def write_ports(node: Any) -> None:
    """Say for the agents of a node which ports they have; raises `AttributeError` where Ray has other names.

    Where the packages of Ray's dashboard are missing, those of its agent are -1, as that agent says itself.
    """
    raylet = import_module("ray._raylet")
    minimal = import_module("ray._private.utils").get_dashboard_dependency_error() is not None
    files = {getattr(raylet, name): getattr(node._ray_params, port) for name, port in PORTS.items()}
    if minimal:
        files |= {name: -1 for name in files if name != raylet.RUNTIME_ENV_AGENT_PORT_NAME}
    for name, port in files.items():
        raylet.persist_port(node.get_session_dir_path(), node._node_id, name, port)


if __name__ == "__main__":
    main()
