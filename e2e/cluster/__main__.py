"""Command line of the test clusters: `python -m e2e.cluster COMMAND`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from e2e.cluster import provider
from e2e.cluster.build import build
from e2e.cluster.daemons import enter_command
from e2e.cluster.errors import ClusterError
from e2e.cluster.pin import pin
from e2e.cluster.versions import load_parts, part_named

__all__ = ["main"]


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description="Real Kubernetes for tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="compile pinned programs that are missing, print their paths")
    builder.add_argument("programs", nargs="*", help="names in versions.toml without `kube-`; default: all")
    pinner = commands.add_parser("pin", help="write modules/PART/ again after a change of versions.toml")
    pinner.add_argument("parts", nargs="*", help="default: all")
    upper = commands.add_parser("up", help=f"make a whole cluster, or find it; {provider.SETTING}=kind|local")
    shape = provider.Options()
    for name, default, what in (
        ("--cpu-hosts", shape.cpu_hosts, "hosts for ordinary pods beside the first"),
        ("--gpu-hosts", shape.gpu_hosts, "hosts of eight H100 each"),
    ):
        upper.add_argument(name, type=int, default=default, help=f"{what} (default: %(default)s)")
    commands.add_parser("down", help="remove the cluster and every trace of it")
    commands.add_parser("status", help="say what works; exit code 1 unless all of it does")
    fake = commands.add_parser("fake-nodes", help="give the cluster exactly so many nodes that KWOK imitates")
    fake.add_argument("--tpu-pools", type=int, default=0, help="v5p-16 pools of two nodes each")
    fake.add_argument("--cpu-nodes", type=int, default=0)
    commands.add_parser("kueue", help="give the cluster Kueue, for namespaces labelled fray.test/kueue=true")
    enter = commands.add_parser(
        "enter", help="run a command on a host, with its network and mounts (provider local)"
    )
    enter.add_argument("host")
    enter.add_argument("words", nargs=argparse.REMAINDER, help="default: sh")
    return parser


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "build":
            parts = (part for part in load_parts().values() if not part.on_demand)
            every = (program.name for part in parts for program in part.programs)
            for path in build(options.programs or every, progress=_say).values():
                _say(str(path))
        case "pin":
            for part in [part_named(name) for name in options.parts or load_parts()]:
                pin(part, progress=_say)
        case "up":
            wanted = provider.Options(cpu_hosts=options.cpu_hosts, gpu_hosts=options.gpu_hosts)
            provider.up(wanted, progress=_say)
        case "down":
            provider.down(progress=_say)
        case "status":
            health = provider.observe_health()
            for what, holds in health.items():
                _say(f"{'yes' if holds else 'NO':4} {what}")
            return 0 if all(health.values()) else 1
        case "fake-nodes":
            provider.set_fake_nodes(tpu_pools=options.tpu_pools, cpu_nodes=options.cpu_nodes, progress=_say)
        case "kueue":
            provider.install_kueue(progress=_say)
        case "enter":
            command = [*enter_command(options.host), *(options.words or ["sh"])]
            os.execvp(command[0], command)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Faults of the harness are printed, without a traceback."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (ClusterError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
