"""What every `KubeApi` does with objects: the client before a real API server, and the server in memory."""

from __future__ import annotations

import asyncio

import pytest

from fray.kube.api import KubeApi
from fray.kube.errors import AlreadyExistsError, ConflictError, NotFoundError, RefusedError
from fray.kube.resources import FRAYJOBS, LEASES
from tests.integration.kube.conftest import Contender
from tests.integration.kube.objects import (
    UNKNOWN,
    edited,
    follow,
    frayjob,
    labelled,
    lease,
    read,
    told,
    version,
)


def test_an_object_is_got_as_it_was_created(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        body = lease("a", namespace)
        created = await api.create(LEASES, body)
        assert body == lease("a", namespace)
        assert created["spec"] == body["spec"]
        metadata = created["metadata"]
        assert (metadata["name"], metadata["namespace"]) == ("a", namespace)
        assert metadata["uid"]
        assert int(metadata["resourceVersion"]) > 0
        assert metadata["creationTimestamp"].endswith("Z")
        assert await api.get(LEASES, "a", namespace=namespace) == created

    contender.run(main)


def test_what_is_not_there_is_not_found(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        with pytest.raises(NotFoundError) as missing:
            await api.get(LEASES, "a", namespace=namespace)
        assert (missing.value.status, missing.value.reason) == (404, "NotFound")

    contender.run(main)


def test_a_kind_that_is_not_served_is_not_found(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        with pytest.raises(NotFoundError):
            await api.get(UNKNOWN, "a", namespace=namespace)
        with pytest.raises(NotFoundError):
            await read(api, UNKNOWN)
        with pytest.raises(NotFoundError):
            await follow(api, UNKNOWN, 1, since="1")
        with pytest.raises(NotFoundError):
            await api.create(UNKNOWN, {"metadata": {"name": "a", "namespace": namespace}})

    contender.run(main)


def test_of_several_creators_one_succeeds(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        made = await asyncio.gather(
            *(api.create(LEASES, lease("a", namespace, holder)) for holder in "abcde"), return_exceptions=True
        )
        (winner,) = [one for one in made if isinstance(one, dict)]
        losers = [one for one in made if isinstance(one, AlreadyExistsError)]
        assert len(losers) == 4
        assert {(loser.status, loser.reason) for loser in losers} == {(409, "AlreadyExists")}
        assert await api.get(LEASES, "a", namespace=namespace) == winner

    contender.run(main)


def test_a_namespaced_object_needs_its_namespace(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        nowhere = lease("a", namespace)
        del nowhere["metadata"]["namespace"]
        with pytest.raises(RefusedError):
            await api.create(LEASES, nowhere)
        created = await api.create(LEASES, nowhere, namespace=namespace)
        assert created["metadata"]["namespace"] == namespace
        with pytest.raises(NotFoundError):
            await api.get(LEASES, "a")
        with pytest.raises(RefusedError):
            await api.create(LEASES, lease("b", "elsewhere"), namespace=namespace)

    contender.run(main)


def test_namespaces_hold_objects_of_the_same_name(contender: Contender, namespace: str) -> None:
    other = contender.new_namespace()

    async def main(api: KubeApi) -> None:
        first = await api.create(LEASES, lease("a", namespace, "first"))
        second = await api.create(LEASES, lease("a", other, "second"))
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        await api.delete(LEASES, "a", namespace=namespace)
        assert await api.get(LEASES, "a", namespace=other) == second

    contender.run(main)


def test_a_replaced_object_has_a_later_version_and_its_uid(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(LEASES, lease("a", namespace))
        replaced = await api.replace(LEASES, edited(created, holderIdentity="b"))
        assert int(version(replaced)) > int(version(created))
        for kept in ("uid", "creationTimestamp"):
            assert replaced["metadata"][kept] == created["metadata"][kept]
        assert replaced["spec"] == {"holderIdentity": "b"}
        assert await api.get(LEASES, "a", namespace=namespace) == replaced

    contender.run(main)


def test_a_version_that_is_old_is_a_conflict_and_changes_nothing(
    contender: Contender, namespace: str
) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(LEASES, lease("a", namespace))
        replaced = await api.replace(LEASES, edited(created, holderIdentity="b"))
        with pytest.raises(ConflictError) as conflict:
            await api.replace(LEASES, edited(created, holderIdentity="c"))
        assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
        assert await api.get(LEASES, "a", namespace=namespace) == replaced

    contender.run(main)


def test_of_several_who_replace_a_version_one_succeeds(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(LEASES, lease("a", namespace))
        written = await asyncio.gather(
            *(api.replace(LEASES, edited(created, holderIdentity=holder)) for holder in "bcdef"),
            return_exceptions=True,
        )
        (winner,) = [one for one in written if isinstance(one, dict)]
        assert sum(isinstance(one, ConflictError) for one in written) == 4
        assert await api.get(LEASES, "a", namespace=namespace) == winner

    contender.run(main)


def test_a_write_that_changes_nothing_makes_no_version(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(LEASES, lease("a", namespace))
        assert version(await api.replace(LEASES, created)) == version(created)
        await api.create(LEASES, lease("b", namespace))
        events = await follow(api, LEASES, 1, since=version(created), namespace=namespace)
        assert told(events) == [("ADDED", "b")]

    contender.run(main)


def test_a_write_without_a_version_is_refused(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(FRAYJOBS, frayjob("a", namespace))
        del created["metadata"]["resourceVersion"]
        with pytest.raises(RefusedError):
            await api.replace(FRAYJOBS, edited(created, suspend=True))

    contender.run(main)


def test_what_is_gone_is_not_replaced(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        job = await api.create(FRAYJOBS, frayjob("a", namespace))
        held = await api.create(LEASES, lease("a", namespace))
        await api.delete(FRAYJOBS, "a", namespace=namespace)
        await api.delete(LEASES, "a", namespace=namespace)
        for subresource in ("", "status"):
            with pytest.raises(NotFoundError):
                await api.replace(FRAYJOBS, job, subresource=subresource)
        # A PUT may create a Lease, so the server only finds that this is not the one that was read.
        with pytest.raises(ConflictError):
            await api.replace(LEASES, held)
        with pytest.raises(NotFoundError):
            await api.get(LEASES, "a", namespace=namespace)

    contender.run(main)


def test_a_successor_of_the_same_name_is_not_replaced(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        first = await api.create(LEASES, lease("a", namespace))
        await api.delete(LEASES, "a", namespace=namespace)
        second = await api.create(LEASES, lease("a", namespace))
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        disguised = edited(second, holderIdentity="b")
        disguised["metadata"]["uid"] = first["metadata"]["uid"]
        for body in (first, disguised):
            with pytest.raises(ConflictError):
                await api.replace(LEASES, body)
        assert await api.get(LEASES, "a", namespace=namespace) == second

    contender.run(main)


def test_status_and_the_rest_are_written_apart(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(FRAYJOBS, {**frayjob("a", namespace), "status": {"phase": "Failed"}})
        assert "status" not in created
        assert created["metadata"]["generation"] == 1
        told = {**labelled(edited(created, suspend=True), x="y"), "status": {"phase": "Running"}}
        reported = await api.replace(FRAYJOBS, told, subresource="status")
        assert reported["status"] == {"phase": "Running"}
        assert reported["spec"] == created["spec"]
        assert "labels" not in reported["metadata"]
        assert reported["metadata"]["generation"] == 1
        again = await api.replace(FRAYJOBS, reported, subresource="status")
        assert version(again) == version(reported)
        changed = {**edited(reported, suspend=True), "status": {"phase": "Failed"}}
        spoken = await api.replace(FRAYJOBS, changed)
        assert spoken["spec"]["suspend"] is True
        assert spoken["status"] == {"phase": "Running"}
        assert spoken["metadata"]["generation"] == 2
        with pytest.raises(ConflictError):
            await api.replace(FRAYJOBS, reported, subresource="status")

    contender.run(main)


def test_what_is_deleted_is_gone_and_deleting_it_again_is_fine(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(LEASES, lease("a", namespace))
        for _ in range(2):
            await api.delete(LEASES, "a", namespace=namespace, uid=created["metadata"]["uid"])
            with pytest.raises(NotFoundError):
                await api.get(LEASES, "a", namespace=namespace)
        await api.delete(LEASES, "a", namespace=namespace)

    contender.run(main)


def test_a_version_that_is_old_is_not_deleted(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(LEASES, lease("a", namespace))
        replaced = await api.replace(LEASES, edited(created, holderIdentity="b"))
        uid = created["metadata"]["uid"]
        for old in ({"uid": uid}, {}):
            with pytest.raises(ConflictError):
                await api.delete(LEASES, "a", namespace=namespace, resource_version=version(created), **old)
        assert await api.get(LEASES, "a", namespace=namespace) == replaced
        await api.delete(LEASES, "a", namespace=namespace, uid=uid, resource_version=version(replaced))
        with pytest.raises(NotFoundError):
            await api.get(LEASES, "a", namespace=namespace)
        await api.delete(LEASES, "a", namespace=namespace, uid=uid, resource_version=version(replaced))

    contender.run(main)


def test_another_object_that_has_taken_the_name_is_not_deleted(contender: Contender, namespace: str) -> None:
    async def main(api: KubeApi) -> None:
        first = await api.create(LEASES, lease("a", namespace))
        await api.delete(LEASES, "a", namespace=namespace)
        second = await api.create(LEASES, lease("a", namespace))
        await api.delete(LEASES, "a", namespace=namespace, uid=first["metadata"]["uid"])
        assert await api.get(LEASES, "a", namespace=namespace) == second

    contender.run(main)


def test_an_object_that_is_deleted_in_the_foreground_keeps_its_name_until_it_is_let_go(
    contender: Contender, namespace: str
) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(FRAYJOBS, frayjob("a", namespace))
        uid = created["metadata"]["uid"]
        await api.delete(FRAYJOBS, "a", namespace=namespace, uid=uid, propagation="Foreground")
        ending = await api.get(FRAYJOBS, "a", namespace=namespace)
        assert ending["metadata"]["deletionTimestamp"]
        assert ending["metadata"]["finalizers"] == ["foregroundDeletion"]
        await api.delete(FRAYJOBS, "a", namespace=namespace, uid=uid, propagation="Foreground")
        assert await api.get(FRAYJOBS, "a", namespace=namespace) == ending
        with pytest.raises(AlreadyExistsError):
            await api.create(FRAYJOBS, frayjob("a", namespace))
        events = await follow(api, FRAYJOBS, 1, since=version(created), namespace=namespace)
        assert told(events) == [("MODIFIED", "a")]
        await api.replace(FRAYJOBS, {**ending, "metadata": {**ending["metadata"], "finalizers": []}})
        with pytest.raises(NotFoundError):
            await api.get(FRAYJOBS, "a", namespace=namespace)

    contender.run(main)


def test_an_object_with_a_finalizer_of_somebody_stays_until_that_is_removed(
    contender: Contender, namespace: str
) -> None:
    async def main(api: KubeApi) -> None:
        created = await api.create(FRAYJOBS, frayjob("a", namespace, finalizers=["example.com/hold"]))
        await api.delete(FRAYJOBS, "a", namespace=namespace)
        ending = await api.get(FRAYJOBS, "a", namespace=namespace)
        assert ending["metadata"]["deletionTimestamp"]
        assert ending["metadata"]["finalizers"] == created["metadata"]["finalizers"]
        await api.replace(FRAYJOBS, {**ending, "metadata": {**ending["metadata"], "finalizers": []}})
        with pytest.raises(NotFoundError):
            await api.get(FRAYJOBS, "a", namespace=namespace)

    contender.run(main)
