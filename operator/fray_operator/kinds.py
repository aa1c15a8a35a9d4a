"""The kinds that an operator serves, each a record: what it is called, what is read of it, what is done.

All else is written once for all kinds: watching, the store, the queue, passes, writes, events, expiry,
metrics and probes. `fray_operator.frayjobs` has the record of FrayJobs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from fray.kube.api import KubeApi, Manifest
from fray.kube.resources import Resource
from fray.nodepools.provider import NodePoolProvider
from fray.wire.model import CustomKind, WireModel
from fray_operator.lease import Lease
from fray_operator.list_watch import ListWatch, Place, find_controller
from fray_operator.metrics import Metrics
from fray_operator.nodes import NodeInformer
from fray_operator.queue import WorkQueue
from fray_operator.settings import OperatorSettings
from fray_operator.store import Store

__all__ = ["Controller", "Key", "Kind", "RefusedError", "Services", "UnreadableError"]

Model = TypeVar("Model", bound=WireModel)


class RefusedError(Exception):
    """What a pass should have made was refused; the status says why, and it is to be tried again later."""


class UnreadableError(Exception):
    """An object that another version of Fray wrote and this one can't judge; the message says what to do."""


class Key(NamedTuple):
    """An object that a pass may be due for; objects of several kinds may have one name."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Services:
    """What the process has for the controllers of all kinds.

    `clock` returns the time, aware of its zone; `node_pools` is None where others make them.
    """

    api: KubeApi
    queue: WorkQueue[Key]
    settings: OperatorSettings
    lease: Lease
    metrics: Metrics
    nodes: NodeInformer | None
    identity: str
    clock: Callable[[], datetime]
    node_pools: NodePoolProvider | None = None


@dataclass(frozen=True)
class Controller:
    """What serves one kind in a process."""

    kind: Kind[Any]
    store: Store
    """Kept like the server's by the watch of the kind."""
    reconcile: Callable[[Place], Awaitable[float | None]]
    """Brings one object a step further; returns seconds after which to look again, None when events will do.

    Raises `RefusedError`, `UnreadableError` and `ApiError`.
    """
    watches: Sequence[Sequence[ListWatch]] = ()
    """The caches of what belongs to the objects, owners first: each row is full before the next begins."""
    writers: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)
    """What writes beside the passes, by name, for as long as the process leads."""


@dataclass(frozen=True, eq=False)
class Kind(Generic[Model]):
    """A custom resource that the operator serves. To serve another is to write its record, and its plan."""

    custom: CustomKind[Model]
    """Its names, model and columns, of which its CRD is made."""
    label: str
    """Of all that belongs to an object: its name."""
    control: Callable[[Kind[Model], Services], Controller]
    """Puts together what serves it in a process."""
    requires: tuple[Resource, ...] = ()
    """Kinds of others without which nothing can be done."""

    @property
    def name(self) -> str:
        """What objects say that they are: `kind`."""
        return self.custom.kind

    @property
    def resource(self) -> Resource:
        """Where they live in the API."""
        return Resource(self.custom.group, self.custom.version, self.custom.plural)

    def key(self, place: Place) -> Key:
        """Return by what an object of this kind is queued."""
        return Key(self.name, *place)

    def parse(self, body: Manifest) -> Model:
        """Return the object in a manifest; raises `UnreadableError`."""
        try:
            return self.custom.model.from_manifest(body)
        except ValidationError as error:
            # The schema keeps such objects out; one can only come from another version of the CRD.
            raise UnreadableError(f"is the CRD newer than the operator? {error}") from error

    def find_owner(self, manifest: Manifest) -> str | None:
        """Return the name of the object that one belongs to: as its label says, or else its controller."""
        label: str | None = manifest["metadata"].get("labels", {}).get(self.label)
        controller = find_controller(manifest)
        if label or controller is None or controller.get("kind") != self.name:
            return label or None
        name: str = controller["name"]
        return name
