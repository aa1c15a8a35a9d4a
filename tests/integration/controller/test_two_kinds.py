"""An operator serves a second kind by that kind's record alone, beside FrayJobs of the same names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.keep_alive import KeepAliveApi
from fray.wire.schema import build_crd
from fray_operator.frayjobs import FRAYJOB
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.greetings import GREETING
from tests.integration.controller.hands import Hands, Manifest, eventually
from tests.integration.controller.operator_thread import OperatorThread, run_operator
from tests.integration.frayjobs import CRD_COLLECTION, await_served


@pytest.fixture
def operator(
    admin: KeepAliveApi, kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> Iterator[OperatorThread]:
    """An operator of both kinds, on a server that has the CRD made of the second one's record."""
    crd = build_crd(GREETING.custom)
    path = f"{CRD_COLLECTION}/{crd['metadata']['name']}"
    # It stays: nobody collects what a deleted object owns here, so the last of the kind would never go.
    assert admin.post(CRD_COLLECTION, crd).status in (201, 409)
    await_served(admin, path)
    with run_operator(kubeconfig, settings_for(hands.namespace), kinds=(FRAYJOB, GREETING)) as running:
        yield running


class Greetings:
    """The greetings of a namespace, and their ConfigMaps."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self.path = f"/apis/fray.dev/v1alpha1/namespaces/{hands.namespace}/greetings"

    def submit(self, name: str, **spec: Any) -> int:
        body = {"apiVersion": "fray.dev/v1alpha1", "kind": "Greeting", "metadata": {"name": name}}
        return self._hands.api.post(self.path, {**body, "spec": spec}).status

    def get(self, name: str) -> Manifest:
        body: Manifest = self._hands.api.get(f"{self.path}/{name}").body
        return body

    def await_text(self, name: str, *, other_than: str = "") -> Manifest:
        """Return the ConfigMap of a greeting once there is one of another uid."""

        def find() -> Manifest | None:
            found = self._hands.api.get(f"{self._hands.core}/configmaps/{name}-text")
            return found.body if found.ok and found.body["metadata"]["uid"] != other_than else None

        text: Manifest = eventually(find, told=lambda: self.get(name))
        return text


def test_two_kinds_of_one_name_in_one_namespace_live_and_end_apart(
    operator: OperatorThread, hands: Hands
) -> None:
    greetings = Greetings(hands)
    hands.submit("train")
    assert greetings.submit("train", text="hello") == 201
    # Each by its own plan.
    jobset = hands.await_jobset("train-a1")
    text = greetings.await_text("train")
    assert text["data"] == {"text": "hello"}
    (pod,) = hands.run_all(jobset)
    hands.await_phase("train", "Running")
    eventually(lambda: greetings.get("train").get("status") == {"said": "hello", "conditions": []})
    # What one owns makes a pass over that one due.
    assert hands.api.delete(f"{hands.core}/configmaps/train-text").ok
    greetings.await_text("train", other_than=text["metadata"]["uid"])
    eventually(lambda: operator.passes("Greeting") >= 2)  # a pass counts once it has ended
    # Events name the object that they are about.
    fields = {"fieldSelector": "involvedObject.kind=Greeting"}
    (event,) = eventually(lambda: hands.api.get(f"{hands.core}/events", **fields).body["items"])
    assert (event["involvedObject"]["name"], event["reason"]) == ("train", "Said")
    assert event["metadata"]["labels"]["fray.dev/greeting"] == "train"
    # The end of one is none of the other.
    hands.exit(pod, 0)
    hands.complete(jobset)
    hands.await_phase("train", "Succeeded")
    hands.delete_job("train")
    assert "deletionTimestamp" not in greetings.get("train")["metadata"]
    over = {"spec": {"over": True, "ttlSecondsAfterFinished": 0}}
    assert hands.api.merge(f"{greetings.path}/train", over).ok
    # In the foreground, so it is there until what it owns is gone.
    eventually(lambda: "deletionTimestamp" in greetings.get("train")["metadata"])


def test_the_schema_of_a_kind_refuses_what_its_model_refuses(operator: OperatorThread, hands: Hands) -> None:
    assert operator.alive
    assert Greetings(hands).submit("silent", text="") == 422
    assert Greetings(hands).submit("spoken", text="hello") == 201
    eventually(lambda: operator.passes("Greeting"))
    metrics = operator.metrics
    assert 'fray_unfinished_objects{kind="Greeting"} 1.0' in metrics
    assert 'fray_watch_silent_seconds{resource="greetings.fray.dev"}' in metrics
