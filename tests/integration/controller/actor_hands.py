"""Plays by hand the user of FrayActors, their StatefulSet's controller, the kubelet and the members."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from fray import vocabulary as words
from fray.plan.timestamps import format_time
from tests.integration.controller.hands import Hands, Manifest, condition, eventually, now

__all__ = ["Actors"]


class Actors:
    """The FrayActors of a namespace, and what belongs to them."""

    def __init__(self, hands: Hands) -> None:
        self.hands, self.api = hands, hands.api
        self.path, self.sets = hands.actors, hands.sets

    def submit(self, name: str, *, owner: Manifest | None = None, **spec: Any) -> Manifest:
        reference = {"apiVersion": words.API_VERSION, "kind": words.FRAYJOB_KIND}
        owners = [reference | {key: owner["metadata"][key] for key in ("name", "uid")}] if owner else []
        body = {
            "apiVersion": words.API_VERSION,
            "kind": words.FRAYACTOR_KIND,
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"name": name, "entrypoint": {"class": "app:Counter"}, **spec},
        }
        answer = self.api.post(self.path, body)
        assert answer.status == 201, answer.body
        made: Manifest = answer.body
        return made

    def get(self, name: str) -> Manifest:
        body: Manifest = self.api.get(f"{self.path}/{name}").body
        return body

    def edit(self, name: str, **spec: Any) -> None:
        assert self.api.merge(f"{self.path}/{name}", {"spec": spec}).ok

    def await_status(self, name: str, check: Callable[[Manifest], Any]) -> Manifest:
        def find() -> Manifest | None:
            status: Manifest = self.get(name).get("status") or {}
            return status if status and check(status) else None

        found: Manifest = eventually(find, told=lambda: self.get(name))
        return found

    def await_condition(self, name: str, kind: str, status: str, reason: str) -> Manifest:
        def holds(told: Manifest) -> bool:
            found = condition({"status": told}, kind)
            return (found.get("status"), found.get("reason")) == (status, reason)

        return self.await_status(name, holds)

    def await_set(self, name: str, *, replicas: int) -> Manifest:
        def find() -> Manifest | None:
            found = self.api.get(f"{self.sets}/{name}")
            return found.body if found.ok and found.body["spec"]["replicas"] == replicas else None

        members: Manifest = eventually(find, told=lambda: self.api.get(self.sets).body)
        return members

    def start(self, members: Manifest, index: int, *, ip: str) -> Manifest:
        """Make the pod of a member, as the StatefulSet controller would, and have it run."""
        running = self.place(members, index)
        self.set_ready(running, ready=False, ip=ip)
        return running

    def place(self, members: Manifest, index: int) -> Manifest:
        """Make the pod of a member, and give it a node."""
        metadata, template = members["metadata"], members["spec"]["template"]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
        pod = {
            "metadata": {
                "name": f"{metadata['name']}-{index}",
                "labels": {**template["metadata"]["labels"], words.LABEL_POD_INDEX: str(index)},
                "ownerReferences": [owner | {key: metadata[key] for key in ("name", "uid")}],
            },
            "spec": {
                **template["spec"],
                "serviceAccountName": "default",
                "automountServiceAccountToken": False,
            },
        }
        return self._place(pod)

    def make_pod(self, name: str, **labels: str) -> Manifest:
        """Make a pod that nobody controls, and give it a node."""
        pod = {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "containers": [{"name": "main", "image": "app:1"}],
                "automountServiceAccountToken": False,
            },
        }
        return self._place(pod)

    def _place(self, pod: Manifest) -> Manifest:
        made = self.api.post(f"{self.hands.core}/pods", pod)
        assert made.status == 201, made.body
        placed: Manifest = made.body
        self.hands.bind(placed)
        return placed

    def hold(self, pod: Manifest, message: str) -> None:
        """Say what a kubelet says of a pod that has waited for a volume for minutes."""
        since = datetime.now(UTC) - timedelta(minutes=2)
        self._warn("Pod", pod, "FailedMount", message, since=since)
        status = {"phase": "Pending", "startTime": format_time(since)}
        path = f"{self.hands.core}/pods/{pod['metadata']['name']}/status"
        assert self.api.merge(path, {"status": status}).ok

    def report_create_failure(self, members: Manifest, message: str) -> None:
        """Say what the StatefulSet controller says when it can't create a pod."""
        self._warn("StatefulSet", members, "FailedCreate", message, since=datetime.now(UTC))

    def _warn(self, kind: str, about: Manifest, reason: str, message: str, *, since: datetime) -> None:
        metadata = about["metadata"]
        event = {
            "metadata": {"name": f"{metadata['name']}.1", "namespace": metadata["namespace"]},
            "involvedObject": {"kind": kind, **{key: metadata[key] for key in ("name", "namespace", "uid")}},
            "reason": reason,
            "message": message,
            "firstTimestamp": format_time(since),
            "lastTimestamp": now(),
        }
        made = self.api.post(f"{self.hands.core}/events", event)
        assert made.status == 201, made.body

    def set_ready(self, pod: Manifest, *, ready: bool, ip: str) -> None:
        told = {"type": "Ready", "status": str(ready), "lastTransitionTime": now()}
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [told]}
        path = f"{self.hands.core}/pods/{pod['metadata']['name']}/status"
        assert self.api.merge(path, {"status": status}).ok

    def report(self, pod: Manifest, name: str, **data: str) -> None:
        """Say what a member says of itself."""
        metadata = {"name": pod["metadata"]["name"], "labels": {words.LABEL_ACTOR: name}}
        body = {"metadata": metadata, "data": {"podUid": pod["metadata"]["uid"], **data}}
        path = f"{self.hands.core}/configmaps"
        made = self.api.post(path, body)
        assert made.ok or self.api.merge(f"{path}/{metadata['name']}", body).ok, made.body
