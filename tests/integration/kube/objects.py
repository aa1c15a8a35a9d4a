"""Objects for the contract tests of `KubeApi`, and how they are listed and followed."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

from fray.kube.api import KubeApi, Manifest, Page, WatchEvent
from fray.kube.resources import Resource

__all__ = [
    "LABEL",
    "UNKNOWN",
    "edited",
    "follow",
    "frayjob",
    "labelled",
    "lease",
    "names",
    "read",
    "told",
    "version",
]

UNKNOWN = Resource("nowhere.example", "v1", "things")
LABEL = "fray.dev/contract"
WATCH_SECONDS = 60.0


def lease(name: str, namespace: str, holder: str = "a", **metadata: Any) -> Manifest:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"holderIdentity": holder},
    }


def frayjob(name: str, namespace: str, **metadata: Any) -> Manifest:
    return {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"entrypoint": {"command": ["train"]}, "suspend": False},
    }


def edited(body: Manifest, **changes: Any) -> Manifest:
    """A copy with other values in the spec."""
    return {**copy.deepcopy(body), "spec": {**body["spec"], **changes}}


def labelled(body: Manifest, **labels: str) -> Manifest:
    return {**copy.deepcopy(body), "metadata": {**body["metadata"], "labels": labels}}


def version(body: Manifest) -> str:
    found: str = body["metadata"]["resourceVersion"]
    return found


def names(pages: list[Page]) -> list[list[str]]:
    return [[item["metadata"]["name"] for item in page.items] for page in pages]


async def read(api: KubeApi, resource: Resource, **options: Any) -> list[Page]:
    return [page async for page in api.list_pages(resource, **options)]


async def follow(
    api: KubeApi, resource: Resource, count: int, *, since: str, **options: Any
) -> list[WatchEvent]:
    """The first changes after a version; bookmarks are none."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(WATCH_SECONDS):
        events = api.watch(resource, resource_version=since, **options)
        async with contextlib.aclosing(events) as open_events:  # type: ignore[type-var]
            async for event in open_events:
                if event.type != "BOOKMARK":
                    found.append(event)
                if len(found) == count:
                    return found
    raise AssertionError(f"the watch ended after {found}")


def told(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"]["name"]) for event in events]
