"""What hosts have free: taking, giving back, and whether something fits. Nothing decides here."""

from __future__ import annotations

from collections.abc import Mapping

from fray.runtime.pool.machine.devices import UNITS, choose_slots
from fray.runtime.pool.machine.records import HostRecord, Needs, WorkerRecord
from fray.runtime.pool.machine.tables import Tables
from fray.runtime.pool.messages.commands import SetTimer
from fray.runtime.pool.messages.specs import Failed, Shape

__all__ = [
    "HOMELESS_SECONDS",
    "UNBOUNDED",
    "build_needs",
    "build_unschedulable",
    "describe_needs",
    "describe_shape",
    "fits",
    "give",
    "give_devices",
    "has_host",
    "is_possible",
    "note_homeless",
    "take",
    "take_devices",
]

UNBOUNDED = 1 << 60
"""As much of a resource as a host may have where nobody knows how much it has at most."""
HOMELESS_SECONDS = 600.0
"""How long a host may be missing that alone has what somebody needs. A new node takes minutes to come."""

DRIVER_HOST = "head_node"
"""What older APIs call the host of the driver."""


def build_needs(tables: Tables, shape: Shape) -> Needs:
    """Return what a host must have for a shape, without "head_node" where no host of the pool has that.

    In pods, drivers bring hosts that run nothing: the older name for "here" means no place there.
    """
    needs = tables.needs_of(shape)
    if DRIVER_HOST not in dict(needs) or any(DRIVER_HOST in host.total for host in tables.hosts.values()):
        return needs
    return tuple((name, amount) for name, amount in needs if name != DRIVER_HOST)


def fits(host: HostRecord, needs: Needs) -> bool:
    """Whether a host has that much free, and takes anything new."""
    if host.leaving:
        return False
    free = host.free
    if not all(free.get(name, 0) >= amount for name, amount in needs):
        return False
    slots = host.devices
    return not slots or all(name not in slots or choose_slots(slots[name], amount) for name, amount in needs)


def take(tables: Tables, host: HostRecord, needs: Needs) -> None:
    """Take resources of a host, below zero if need be."""
    free = host.free
    for name, amount in needs:
        free[name] = free.get(name, 0) - amount
    if free.get("CPU", 0) <= 0:
        tables.open_hosts.pop(host.id, None)


def give(tables: Tables, host: HostRecord, needs: Needs) -> None:
    """Give back what was taken."""
    free = host.free
    for name, amount in needs:
        free[name] += amount
    if free.get("CPU", 0) > 0 and host.id in tables.hosts and not host.leaving:
        tables.open_hosts[host.id] = host
    tables.freed += 1
    tables.dirty = True


def take_devices(worker: WorkerRecord) -> None:
    """Choose the accelerators of a process among those of its host, where they fit."""
    slots = worker.host.devices
    for name, amount in worker.held:
        if name in slots:
            claims = worker.devices[name] = choose_slots(slots[name], amount) or {}
            for index, part in claims.items():
                slots[name][index] -= part


def give_devices(worker: WorkerRecord) -> None:
    """Give back what `take_devices` took."""
    for name, claims in worker.devices.items():
        for index, part in claims.items():
            worker.host.devices[name][index] += part
    worker.devices = {}


def has_host(tables: Tables, needs: Needs) -> bool:
    """Whether some host that is here has that much."""
    return any(_covers(host.total, needs) for host in tables.hosts.values())


def is_possible(tables: Tables, needs: Needs) -> bool:
    """Whether some host, present or to come, could satisfy this; before the first host, anything might."""
    return not tables.hosts or tables.allowed is None or has_host(tables, needs) or _is_allowed(tables, needs)


def note_homeless(tables: Tables, needs: Needs) -> None:
    """Note that a host is missed; give it time to come, unless it's known that such a one may."""
    if needs not in tables.homeless and tables.hosts and not has_host(tables, needs):
        tables.homeless[needs] = tables.now
        if not _is_allowed(tables, needs):
            tables.commands.append(SetTimer(HOMELESS_SECONDS, ("homeless", 0)))


def _is_allowed(tables: Tables, needs: Needs) -> bool:
    return any(_covers(dict(host), needs) for host in tables.allowed or ())


def _covers(total: Mapping[str, int], needs: Needs) -> bool:
    return all(total.get(name, 0) >= amount for name, amount in needs)


def build_unschedulable(tables: Tables, name: str, shape: Shape) -> Failed:
    """Return what becomes of a task or actor that no host can ever satisfy."""
    known = [*(host.total for host in tables.hosts.values()), *map(dict, tables.allowed or ())]
    largest = max(map(sorted, map(dict.items, known)), default=[])
    offered = tuple((what, amount / UNITS) for what, amount in largest if amount < UNBOUNDED * UNITS)
    details = (("wants", describe_shape(shape)), ("offered", describe_shape(offered)))
    return Failed(b"", "UnschedulableError", name, (), details)


def describe_needs(needs: Needs) -> str:
    """Return in words what is needed."""
    return describe_shape(tuple((name, amount / UNITS) for name, amount in needs))


def describe_shape(shape: Shape) -> str:
    """Return resources in words."""
    return ", ".join(f"{name}: {amount:.10g}" for name, amount in shape) or "nothing"
