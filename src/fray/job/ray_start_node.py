"""Nodes of Ray that wait for no agent; `python -m fray.job.ray_start_node start ...` is `ray start` so.

A raylet waits for files in which the agents beside it say their ports, and ends if they take longer than
15 s: node_manager.cc of Ray 2.60, where nothing changes the time. On a busy machine they do, since they
import a lot. So each agent is given its port, and the files are there first.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

__all__ = ["agents_unawaited", "main", "write_ports"]

FREE_PORTS: Final = range(20000, 32768)
"""Where ports are looked for: above those of Ray's workers, and below those that Linux gives to any socket,
one of which could take a port before its agent does."""
PORTS: Final = {
    "METRICS_AGENT_PORT_NAME": "metrics_agent_port",
    "METRICS_EXPORT_PORT_NAME": "metrics_export_port",
    "DASHBOARD_AGENT_LISTEN_PORT_NAME": "dashboard_agent_listen_port",
    "RUNTIME_ENV_AGENT_PORT_NAME": "runtime_env_agent_port",
}
"""Ray's name for the part of a file's name -> the parameter of a node that has the port."""


def main() -> None:
    """Be `ray`, with the arguments of this process."""
    with agents_unawaited():
        import_module("ray.scripts.scripts").main()


@contextlib.contextmanager
def agents_unawaited() -> Iterator[None]:
    """Let nodes that this process starts within the block give their agents ports, and not wait for them."""
    node = import_module("ray._private.node").Node
    start = node.start_ray_processes

    def start_with_ports(self: Any) -> None:
        # Without it Ray starts as ever: another version may have other names.
        with contextlib.suppress(AttributeError):
            _give_ports(self._ray_params)
            write_ports(self)
        start(self)

    node.start_ray_processes = start_with_ports
    try:
        yield
    finally:
        node.start_ray_processes = start


def _give_ports(params: Any) -> None:
    """Give a free port to each agent that has none; raises `AttributeError` where Ray has other names."""
    open_ones = [name for name in PORTS.values() if not getattr(params, name)]
    with contextlib.ExitStack() as held:
        for name in open_ones:
            setattr(params, name, _hold_port(held))


def _hold_port(held: contextlib.ExitStack) -> int:
    """Return a port that nobody has, bound until the stack is closed; 0 where there is none."""
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        each = held.enter_context(socket.socket())
        with contextlib.suppress(OSError):
            each.bind(("", port))
            return port
    return 0


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
