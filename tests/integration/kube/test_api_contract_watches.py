"""What every `KubeApi` lists, and what it tells of changes from there on."""

from __future__ import annotations

import asyncio

import pytest

from fray.kube.api import KubeApi, Page
from fray.kube.errors import ExpiredError, RefusedError
from fray.kube.resources import EVENTS, FRAYJOBS, LEASES, NODES
from tests.integration.kube.conftest import Contender
from tests.integration.kube.objects import (
    LABEL,
    edited,
    follow,
    frayjob,
    labelled,
    lease,
    names,
    read,
    told,
    version,
)


def test_a_list_is_read_in_pages_of_one_moment(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        for name in "caebd":
            await api.create(LEASES, lease(name, namespace))
        pages: list[Page] = []
        async for page in api.list_pages(LEASES, namespace=namespace, limit=2):
            if not pages:
                await api.create(LEASES, lease("bb", namespace))
                await api.delete(LEASES, "e", namespace=namespace)
            pages.append(page)
        assert names(pages) == [["a", "b"], ["c", "d"], ["e"]]
        assert {page.resource_version for page in pages} == {pages[0].resource_version}
        since = pages[-1].resource_version
        events = await follow(api, LEASES, 2, since=since, namespace=namespace)
        assert told(events) == [("ADDED", "bb"), ("DELETED", "e")]

    contender.run(main)


def test_a_list_of_nothing_is_a_page_with_a_version(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(LEASES, lease("a", namespace))
        for options in ({"namespace": namespace, "labels": LABEL}, {"namespace": contender.new_namespace()}):
            (page,) = await read(api, LEASES, **options)
            assert page.items == []
            assert int(page.resource_version) >= int(version(created))
        assert names(await read(api, NODES)) == [[]]

    contender.run(main)


def test_a_list_holds_the_objects_of_its_namespace_or_of_all(contender: Contender, namespace: str) -> None:
    other = contender.new_namespace()

    async def main(api: KubeApi) -> None:
        labels = {LABEL: namespace}
        first = await api.create(LEASES, lease("b", namespace, labels=labels))
        await api.create(LEASES, lease("a", other, labels=labels))
        (page,) = await read(api, LEASES, namespace=namespace)
        (item,) = page.items
        # Lists of built-in kinds leave out what is the same in all items.
        assert (item["metadata"], item["spec"]) == (first["metadata"], first["spec"])
        selected = f"{LABEL}={namespace}"
        assert sorted(*names(await read(api, LEASES, labels=selected))) == ["a", "b"]

    contender.run(main)


def test_a_list_holds_what_its_labels_select(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        await api.create(LEASES, lease("a", namespace, labels={LABEL: "x", "other": "1"}))
        await api.create(LEASES, lease("b", namespace, labels={LABEL: "y"}))
        await api.create(LEASES, lease("c", namespace, labels={"other": "1"}))
        await api.create(LEASES, lease("d", namespace))
        for selector, expected in [
            (LABEL, ["a", "b"]),
            (f"{LABEL}=x", ["a"]),
            (f"{LABEL},other", ["a"]),
            ("", ["a", "b", "c", "d"]),
        ]:
            assert names(await read(api, LEASES, namespace=namespace, labels=selector)) == [expected]

    contender.run(main)


@pytest.mark.parametrize("contender", ["memory", "fake", "kubernetes"], indirect=True)
def test_of_what_is_asked_for_by_its_metadata_nothing_else_is_told(
    contender: Contender, namespace: str
) -> None:
    async def main(api: KubeApi) -> None:
        first = await api.create(LEASES, labelled(lease("a", namespace), **{LABEL: "x"}))
        (page,) = await read(api, LEASES, namespace=namespace, labels=LABEL, metadata_only=True)
        (listed,) = page.items
        assert listed["metadata"] == first["metadata"]
        assert "spec" not in listed
        await api.replace(LEASES, edited(first, holderIdentity="b"))
        options = {"since": page.resource_version, "namespace": namespace, "metadata_only": True}
        (event,) = await follow(api, LEASES, 1, **options)
        assert (event.type, event.object["metadata"]["uid"]) == ("MODIFIED", first["metadata"]["uid"])
        assert "spec" not in event.object

    contender.run(main)


def test_a_list_holds_what_its_fields_select(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        for name, kind, reason in [
            ("a", "Job", "FailedCreate"),
            ("b", "Job", "SuccessfulCreate"),
            ("c", "Pod", "FailedCreate"),
        ]:
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {"kind": kind, "name": "x", "namespace": namespace},
                "reason": reason,
            }
            await api.create(EVENTS, event)
        fields = "involvedObject.kind=Job,reason=FailedCreate"
        assert names(await read(api, EVENTS, namespace=namespace, fields=fields)) == [["a"]]
        assert names(await read(api, EVENTS, namespace=namespace, fields="metadata.name=c")) == [["c"]]
        with pytest.raises(RefusedError):
            await read(api, EVENTS, namespace=namespace, fields="count=1")

    contender.run(main)


def test_a_watch_tells_what_changed_after_its_version(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        await api.create(LEASES, lease("before", namespace))
        first = await api.create(LEASES, lease("a", namespace))
        await api.create(LEASES, lease("a", contender.new_namespace()))
        second = await api.replace(LEASES, edited(first, holderIdentity="b"))
        await api.delete(LEASES, "a", namespace=namespace)
        third = await api.create(LEASES, lease("a", namespace))
        events = await follow(api, LEASES, 3, since=version(first), namespace=namespace)
        assert told(events) == [("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]
        modified, deleted, added = (event.object for event in events)
        assert (modified, added) == (second, third)
        assert deleted["metadata"]["uid"] == first["metadata"]["uid"]
        assert int(version(second)) < int(version(deleted)) < int(version(third))
        assert await follow(api, LEASES, 1, since=version(deleted), namespace=namespace) == events[2:]

    contender.run(main)


def test_open_watches_are_told_of_changes_as_they_come(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        first = await api.create(LEASES, lease("a", namespace))
        await api.create(LEASES, lease("b", namespace))
        watches = [api.watch(LEASES, resource_version=version(first), namespace=namespace) for _ in range(2)]
        async with asyncio.timeout(60):
            # They are open for certain once they have told something.
            for events in watches:
                assert told([await anext(events)]) == [("ADDED", "b")]
            await api.create(LEASES, lease("c", namespace))
            for events in watches:
                assert told([await anext(events)]) == [("ADDED", "c")]
                await events.aclose()  # type: ignore[attr-defined]

    contender.run(main)


def test_an_object_that_is_no_longer_selected_is_gone_for_the_watch(
    contender: Contender, namespace: str
) -> None:
    async def main(api: KubeApi) -> None:
        plain = await api.create(LEASES, lease("a", namespace))
        selected = await api.replace(LEASES, labelled(plain, **{LABEL: "x"}))
        changed = await api.replace(LEASES, edited(selected, holderIdentity="b"))
        dropped = await api.replace(LEASES, labelled(changed))
        await api.replace(LEASES, edited(dropped, holderIdentity="c"))
        await api.create(LEASES, lease("b", namespace, labels={LABEL: "x"}))
        options = {"namespace": namespace, "labels": LABEL}
        events = await follow(api, LEASES, 4, since=version(plain), **options)
        assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
        assert version(events[2].object) == version(dropped)

    contender.run(main)


def test_a_watch_may_be_of_one_object_by_its_name(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        first = await api.create(FRAYJOBS, frayjob("a", namespace))
        for name in ("ab", "b"):
            await api.create(FRAYJOBS, frayjob(name, namespace))
        await api.delete(FRAYJOBS, "a", namespace=namespace)
        await api.delete(FRAYJOBS, "b", namespace=namespace)
        options = {"since": version(first), "namespace": namespace, "fields": "metadata.name=b"}
        assert told(await follow(api, FRAYJOBS, 2, **options)) == [("ADDED", "b"), ("DELETED", "b")]

    contender.run(main)


def test_a_watch_of_all_namespaces_tells_of_each(contender: Contender, namespace: str) -> None:
    other = contender.new_namespace()

    async def main(api: KubeApi) -> None:
        labels = {LABEL: namespace}
        first = await api.create(LEASES, lease("a", namespace, labels=labels))
        await api.create(LEASES, lease("b", other, labels=labels))
        await api.create(LEASES, lease("c", namespace, labels=labels))
        events = await follow(api, LEASES, 2, since=version(first), labels=f"{LABEL}={namespace}")
        assert told(events) == [("ADDED", "b"), ("ADDED", "c")]

    contender.run(main)


def test_a_version_that_is_forgotten_has_expired(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        await api.create(FRAYJOBS, frayjob("a", namespace))
        await api.create(FRAYJOBS, frayjob("b", namespace))
        contender.age()
        with pytest.raises(ExpiredError) as expired:
            await follow(api, FRAYJOBS, 1, since="1", namespace=namespace)
        assert expired.value.status == 410
        # Those who list again go on from there.
        (page,) = await read(api, FRAYJOBS, namespace=namespace)
        await api.create(FRAYJOBS, frayjob("c", namespace))
        events = await follow(api, FRAYJOBS, 1, since=page.resource_version, namespace=namespace)
        assert told(events) == [("ADDED", "c")]

    contender.run(main)


def test_a_watch_that_the_server_ends_is_no_error(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        first = await api.create(LEASES, lease("a", namespace))
        await api.delete(LEASES, "a", namespace=namespace)
        last = version(first)
        changes: list[str] = []
        # A busy machine may let its time end before the watch has told anything: the next one tells it.
        while not changes:
            async for event in api.watch(LEASES, resource_version=last, namespace=namespace, seconds=5):
                assert int(version(event.object)) >= int(last)
                last = version(event.object)
                if event.type != "BOOKMARK":
                    changes.append(event.type)
                    contender.end_watches()
        assert changes == ["DELETED"]

    contender.run(main)
