"""One attempt on this machine: its ports, its processes and their output, from start to end.

What an attempt is made of is `pods`; when one starts and ends is decided by `fray.plan.lifecycle` and
done by `runner`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fray.cluster.local.callables import (
    build_callable_command,
    ending_file,
    outcome_file,
    prepare_endings,
)
from fray.cluster.local.environment import select_own
from fray.cluster.local.host import HostEvents, HostProcess, HostTask
from fray.cluster.local.output import AttemptOutput, HostOutput
from fray.cluster.local.pods import LocalMachine, LocalPod, build_local_pods
from fray.cluster.local.ports import PortLeases
from fray.cluster.local.store import JobFolder
from fray.plan.gang import Gang, derive_gang
from fray.plan.jobset import build_attempt
from fray.plan.names import Ports, build_loopback_addresses
from fray.plan.observation import GangObservation
from fray.plan.settings import PlanSettings
from fray.types import CallableEntrypoint
from fray.wire.frayjob import FrayJob

if TYPE_CHECKING:
    from fray.cluster.local.host_thread import HostThread

__all__ = ["PLAN_SETTINGS", "InProcessCall", "LocalAttempt", "Workplace"]

PLAN_SETTINGS = PlanSettings(injector_image=None, metadata_server=False)


@dataclass(frozen=True)
class InProcessCall:
    """A callable whose hosts are threads of this program; `enter` is called in each of them first."""

    call: CallableEntrypoint = field(repr=False)
    enter: Callable[[], object]


@dataclass(frozen=True)
class Workplace:
    """Where a job's processes run: their machine, base environment and folder.

    `working_dir` is where they start unless their container says otherwise; `fixed_dir` overrides both.
    `secrets` are variables whose values stand nowhere else. `payload` is the folder of the pickled callable,
    None for a program. With `in_process` hosts are threads that call it.
    """

    machine: LocalMachine
    environment: Mapping[str, str] = field(repr=False)
    working_dir: str
    fixed_dir: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    payload: Path | None = None
    in_process: InProcessCall | None = None

    @property
    def has_callable(self) -> bool:
        """Whether its hosts leave behind what became of a callable."""
        return self.payload is not None or self.in_process is not None

    def open_host(
        self, pod: LocalPod, logs: Path, output: HostOutput, events: HostEvents
    ) -> HostProcess | HostThread:
        """Return the host that a pod stands for, not yet started."""
        if self.in_process is None:
            return HostProcess(self.build_task(pod, logs), output, events)
        from fray.cluster.local.host_thread import HostThread, ThreadTask  # noqa: PLC0415 - few ask for it

        task = ThreadTask(
            pod,
            self.in_process.call,
            outcome_file(logs, pod.rank),
            ending_file(logs, pod.rank),
            variables={**select_own(pod.env), **self.secrets},
            enter=self.in_process.enter,
        )
        return HostThread(task, output, events)

    def build_task(self, pod: LocalPod, logs: Path) -> HostTask:
        """Return what the process of a pod is started with; `logs` is the folder of its attempt."""
        working_dir = self.fixed_dir or pod.working_dir or self.working_dir
        if self.payload is not None:
            command = build_callable_command(pod.command, payload=self.payload, logs=logs, rank=pod.rank)
            pod = replace(pod, command=command)
        return HostTask(pod, {**self.environment, **pod.env, **self.secrets}, working_dir)


class LocalAttempt:
    """The processes of one attempt."""

    def __init__(
        self,
        hosts: tuple[HostProcess | HostThread, ...],
        leases: PortLeases,
        output: AttemptOutput,
        moved: Mapping[str, str],
    ) -> None:
        self._hosts = hosts
        self._leases = leases
        self._output = output
        self.moved_ports = moved
        """Named ports that got another number than the declared one, as text for the user."""

    @classmethod
    def prepare(
        cls,
        job: FrayJob,
        number: int,
        workplace: Workplace,
        *,
        folder: JobFolder,
        leases: PortLeases,
        events: HostEvents,
    ) -> LocalAttempt:
        """Lease ports and make the log files of an attempt; nothing runs yet.

        `leases` stay the caller's to release if this raises.

        Raises:
            PortsExhaustedError: too few ports are free.
            StateDirectoryError: the log files can't be made.
        """
        gang = derive_gang(job.spec)
        coordinator, megascale, tpu_process, torch = leases.lease(4)
        addresses = build_loopback_addresses(Ports(coordinator, megascale, tpu_process, torch))
        named = _lease_named_ports(job, gang, leases)
        plan = build_attempt(job, attempt=number, settings=PLAN_SETTINGS, addresses=addresses)
        pods = build_local_pods(plan, workplace.machine, ports=named)
        folder.prune_logs(newest=number)
        logs = folder.attempt_logs(number)
        output = AttemptOutput(logs)
        if workplace.has_callable:
            prepare_endings(logs, hosts=gang.hosts)
        hosts = tuple(
            workplace.open_host(pod, logs, output.open_host(pod.slice_index, pod.host), events)
            for pod in pods
        )
        return cls(hosts, leases, output, _moved_ports(job, named))

    @property
    def observation(self) -> GangObservation:
        """What is known of all hosts now."""
        return GangObservation(tuple(host.observation for host in self._hosts))

    async def start(self, *, locks: int) -> None:
        """Start all hosts; `locks` is a descriptor that they keep open."""
        for host in self._hosts:
            await host.start(inherited=(locks, *self._leases.descriptors))

    def terminate(self) -> None:
        """Ask all hosts to end; those that have ended don't mind."""
        for host in self._hosts:
            host.terminate()

    def kill(self) -> None:
        """Kill all hosts."""
        for host in self._hosts:
            host.kill()

    async def close(self) -> None:
        """Kill what still lives, wait until it has gone, and give back ports and files."""
        self.kill()
        running = [host for host in self._hosts if host.living]
        await asyncio.gather(*(host.wait_ended() for host in running))
        self._leases.release()
        self._output.close()


def _lease_named_ports(job: FrayJob, gang: Gang, leases: PortLeases) -> list[dict[str, int]]:
    """Return the numbers of the job's named ports for each rank.

    The hosts of a gang share one address, so only a gang of one can have the declared numbers.
    """
    declared = {port.name: port.port for port in job.spec.ports}
    free = leases.lease_exactly(declared.values()) if gang.hosts == 1 else set()
    ranks: list[dict[str, int]] = []
    for _ in range(gang.hosts):
        moved = [name for name, number in declared.items() if number not in free]
        ranks.append({**declared, **dict(zip(moved, leases.lease(len(moved)), strict=True))})
    return ranks


def _moved_ports(job: FrayJob, named: list[dict[str, int]]) -> dict[str, str]:
    moved: dict[str, str] = {}
    for port in job.spec.ports:
        numbers = [rank[port.name] for rank in named]
        if numbers != [port.port]:
            shown = [str(number) for number in numbers[:4]] + (["..."] if len(numbers) > 4 else [])
            moved[port.name] = f"{port.port} -> {', '.join(shown)}"
    return moved
