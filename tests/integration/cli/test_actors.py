"""FrayActors from the shell, on a real API server; the test plays the operator and the kubelet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fray import vocabulary as words
from tests.integration.cli.conftest import Command, Machine
from tests.integration.cli.test_jobs import read_until
from tests.integration.controller.hands import Manifest, now

READY = {"index": 0, "pod": "buffer-0", "startNumber": 2, "ready": True, "restarts": 1}
LOST = {
    "index": 1,
    "pod": "buffer-1",
    "startNumber": 1,
    "restarts": 0,
    "lastError": {"type": "ValueError", "message": "no such level", "traceback": "  line 3\n    raise"},
}


class Actor:
    """A FrayActor that is called `train/buffer`, with pods that print."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.api, self.core = machine, machine.hands.api, machine.hands.core
        self.namespace = machine.hands.namespace
        path = f"/apis/{words.API_VERSION}/namespaces/{self.namespace}/{words.FRAYACTOR_PLURAL}"
        spec = {"name": "train/buffer", "entrypoint": {"class": "app:Buffer"}, "replicas": 2}
        kinds = {"apiVersion": words.API_VERSION, "kind": words.FRAYACTOR_KIND}
        body = kinds | {
            "metadata": {"name": "buffer"},
            "spec": {**spec, "lifetime": "job", "rootJob": "train"},
        }
        made = self.api.post(path, body)
        assert made.status == 201, made.body
        self.uid, self.path = made.body["metadata"]["uid"], f"{path}/buffer"
        status = {"ready": "1/2", "replicas": 2, "restarts": 1, "members": [READY, LOST]}
        assert self.api.merge(f"{self.path}/status", {"status": status}).ok

    def start(self, index: int) -> Manifest:
        """Let the pod of a member run."""
        labels = {
            words.LABEL_ACTOR: "buffer",
            words.LABEL_ACTOR_UID: self.uid,
            words.LABEL_POD_INDEX: str(index),
        }
        pod = {
            "metadata": {"name": f"buffer-{index}", "labels": labels},
            "spec": {"containers": [{"name": words.CONTAINER, "image": "image"}]},
        }
        made = self.api.post(f"{self.core}/pods", pod)
        assert made.ok, made.body
        self.machine.hands.bind(made.body, self.machine.kubelet.node)
        self.run(index, "first")
        running: Manifest = made.body
        return running

    def run(self, index: int, container: str) -> None:
        """Let the container of a member's pod be another one."""
        state: dict[str, Any] = {"running": {"startedAt": now()}}
        told = {
            "name": words.CONTAINER,
            "image": "image",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": state,
            "containerID": f"test://{index}-{container}",
        }
        path = f"{self.core}/pods/buffer-{index}/status"
        assert self.api.merge(path, {"status": {"phase": "Running", "containerStatuses": [told]}}).ok


@pytest.fixture
def actor(machine: Machine) -> Actor:
    return Actor(machine)


def test_actors_are_listed_described_and_deleted(fray: Command, actor: Actor) -> None:
    heading, ready, starting = fray.run("actors").out.splitlines()
    assert heading.split() == ["NAME", "ACTOR", "MEMBER", "STATE", "START", "RESTARTS", "NODE", "AGE"]
    assert ready.split()[:6] == ["buffer", "train/buffer", "0", "Ready", "2", "1"]
    assert starting.split()[:6] == ["buffer", "train/buffer", "1", "Starting", "1", "0"]
    (listed,) = json.loads(fray.run("actors", "-o", "json").out)["items"]
    described = json.loads(fray.run("actors", "describe", "train/buffer", "-o", "json").out)
    assert listed == described
    assert listed["status"]["members"][0]["startNumber"] == 2
    story = fray.run("actors", "describe", "buffer").out
    assert "ends with job train" in story
    assert "last error: ValueError: no such level" in story
    missing = fray.run("actors", "delete", "bufer")
    assert (missing.code, "no actor 'bufer'" in missing.err, "buffer" in missing.err) == (2, True, True)
    assert fray.run("actors", "delete", "train/buffer").out == "frayactor.fray.dev/buffer deleted\n"
    assert actor.api.get(actor.path).status == 404
    assert fray.run("actors").err.startswith("no actors in namespace ")


def test_a_job_is_shown_with_its_actors(fray: Command, actor: Actor) -> None:
    assert fray.run("run", "--name", "train", "--detach", "--", "train").code == 0
    assert fray.run("run", "--name", "other", "--detach", "--", "train").code == 0
    story = fray.run("status", "train").out
    assert "\nActors\n" in story
    assert "train/buffer" in story
    assert "Actors" not in fray.run("status", "other").out
    # It was made for an earlier job of that name.
    owner = {"apiVersion": words.API_VERSION, "kind": words.FRAYJOB_KIND, "name": "train", "uid": "earlier"}
    assert actor.api.merge(actor.path, {"metadata": {"ownerReferences": [owner]}}).ok
    assert "Actors" not in fray.run("status", "train").out


def test_logs_of_members_go_on_when_their_containers_are_started_again(fray: Command, actor: Actor) -> None:
    kubelet = actor.machine.kubelet
    kubelet.write("buffer-0", "zero", at=0)
    kubelet.write("buffer-1", "one", at=1)
    actor.start(0)
    pod = actor.start(1)
    assert fray.run("actors", "logs", "buffer").out == "[0/0] zero\n[1/0] one\n"
    assert fray.run("actors", "logs", "buffer", "--tail", "1", "--timestamps").out.endswith("Z [1/0] one\n")
    following = fray.start("actors", "logs", "-f", "train/buffer", "--member", "1")
    assert following.stdout is not None
    assert read_until(following.stdout, "one") == "[1/0] one\n"
    actor.run(1, "second")
    kubelet.rotate("buffer-1")  # the log of the next container is another file
    kubelet.cut()
    kubelet.write("buffer-1", "again", at=2)
    assert read_until(following.stdout, "again").endswith("[1/0] again\n")
    assert fray.run("actors", "delete", "buffer").code == 0
    kubelet.write("buffer-1", "last", at=3, ended=True)
    actor.machine.hands.exit(pod, 0)
    assert fray.finish(following).out == "[1/0] last\n"


def test_a_member_that_is_not_there_is_refused(fray: Command, actor: Actor) -> None:
    refused = fray.run("actors", "logs", "buffer", "--member", "2")
    assert (refused.code, "buffer has 2 members, counted from 0" in refused.err) == (2, True)
