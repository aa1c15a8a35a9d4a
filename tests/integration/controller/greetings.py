"""A kind of its own, for a test: a Greeting has a ConfigMap with its text. One record and its plan."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from fray.kube.api import Manifest
from fray.kube.errors import AlreadyExistsError
from fray.kube.resources import CONFIG_MAPS
from fray.plan.events import EventDraft
from fray.wire.frayjob import ObjectMeta
from fray.wire.model import CustomKind, WireModel
from fray.wire.status import Condition
from fray_operator.cleanup import Expiry
from fray_operator.informer import Informer
from fray_operator.kinds import Controller, Kind, Services
from fray_operator.list_watch import Place
from fray_operator.store import Store
from fray_operator.writer import Writer

__all__ = ["GREETING"]

LABEL = "fray.dev/greeting"


class GreetingSpec(WireModel):
    """What to say."""

    text: Annotated[str, Field(min_length=1, max_length=64)]
    over: bool = False
    ttl_seconds_after_finished: int | None = None


class GreetingStatus(WireModel):
    """What was said."""

    said: str | None = None
    conditions: list[Condition] = []  # noqa: RUF012 - pydantic copies it


class Greeting(WireModel):
    """A text that stands in a ConfigMap."""

    api_version: Literal["fray.dev/v1alpha1"] = "fray.dev/v1alpha1"
    kind: Literal["Greeting"] = "Greeting"
    metadata: ObjectMeta
    spec: GreetingSpec
    status: GreetingStatus = GreetingStatus()


def derive_status(greeting: Greeting, now: datetime) -> GreetingStatus:
    time = now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    end = Condition(type="Finished", status="True", reason="Over", message="", last_transition_time=time)
    conditions = [end] if greeting.spec.over else []
    return GreetingStatus(said=greeting.spec.text, conditions=conditions)


def build_config_map(greeting: Greeting) -> Manifest:
    metadata = greeting.metadata
    owner = {
        "apiVersion": greeting.api_version,
        "kind": greeting.kind,
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
    }
    return {
        "metadata": {
            "name": f"{metadata.name}-text",
            "namespace": metadata.namespace,
            "labels": {LABEL: metadata.name},
            "ownerReferences": [owner],
        },
        "data": {"text": greeting.spec.text},
    }


def control(kind: Kind[Greeting], services: Services) -> Controller:
    """Put together what serves greetings."""

    def due(place: Place) -> None:
        services.queue.add(kind.key(place))

    api, store = services.api, Store(due)
    writer = Writer(api, services.lease, kind, identity=services.identity)
    expiry = Expiry(store, writer)
    texts = [
        Informer(api, CONFIG_MAPS, kind, namespace=each, on_change=due, trim=dict)
        for each in services.settings.namespaces or (None,)
    ]

    async def reconcile(place: Place) -> float | None:
        body = store.get(place)
        if body is None:
            return await expiry.expire(place, now=services.clock())
        greeting = kind.parse(body)
        status = derive_status(greeting, services.clock()).to_manifest()
        if status != body.get("status"):
            store.update(await writer.write_status(body, status))
            told = EventDraft(key="said", warning=False, reason="Said", message=greeting.spec.text)
            await writer.send_event(greeting.metadata, told)
        if not any(cache.of_job(place) for cache in texts):
            try:
                await api.create(CONFIG_MAPS, build_config_map(greeting))
            except AlreadyExistsError:
                return None
        return None

    return Controller(kind, store, reconcile, [texts])


GREETING: Final = Kind(
    custom=CustomKind(
        kind="Greeting",
        plural="greetings",
        short_name="gr",
        model=Greeting,
        columns=[{"name": "Said", "type": "string", "jsonPath": ".status.said"}],
    ),
    label=LABEL,
    control=control,
)
