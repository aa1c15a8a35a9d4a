"""Jobs of a cluster from the shell: run, shown, waited for, stopped, as on this machine."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from fray.vocabulary import API_VERSION, FRAYJOB_KIND
from tests.integration.cli.conftest import Command, Machine
from tests.integration.cluster.jobs import finish, secrets_of
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_thread import OperatorThread
from tests.integration.frayjobs import FrayJobs
from tests.local.harness import job_manifest


def read_until(stream: Any, text: str) -> str:
    """Return what a process has printed up to and with a line that holds a text."""
    read = ""
    for line in iter(stream.readline, b""):
        read += line.decode()
        if text in read:
            return read
    raise AssertionError(f"no {text!r} in {read!r}")


def test_a_job_is_shown_until_its_end_and_afterwards(
    fray: Command, machine: Machine, operator: OperatorThread
) -> None:
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other"}}
    path = fray.write("train.yaml", job_manifest("train", name="train", replicas=2), manifest)
    running = fray.start("run", "-f", path)
    jobset, (first, second) = machine.start("train-a1")
    machine.kubelet.write(first, "epoch 1", at=0)
    assert running.stdout is not None
    shown = read_until(running.stdout, "epoch 1")
    assert shown == "[0/0] epoch 1\n"
    machine.kubelet.write(second, "\x1b[31mred", "Zürich", at=1)
    machine.hands.await_phase("train", "Running")
    machine.end(jobset)
    ended = fray.finish(running)
    assert ended.code == 0, ended
    assert sorted((shown + ended.out).splitlines()) == [
        "[0/0] epoch 1",
        "[0/1] \x1b[31mred",
        "[0/1] Zürich",
    ]
    told = ended.err.splitlines()
    assert told[0] == "Secret/other in the same file: left out; `kubectl apply` makes it"
    assert told[1].startswith(f"train: created in namespace {machine.hands.namespace} of the cluster at ")
    assert "train: attempt 1: 2/2 hosts running" in told
    assert told[-1].startswith("train: Succeeded in ")

    heading, row = fray.run("list").out.splitlines()
    assert heading.split() == ["NAME", "PHASE", "ATTEMPT", "READY", "REASON", "AGE"]
    assert row.split()[:3] == ["train", "Succeeded", "1"]
    listed = json.loads(fray.run("list", "-o", "json").out)
    assert [job["metadata"]["name"] for job in listed["items"]] == ["train"]
    status = fray.run("status", "train").out
    assert status.startswith("train   Succeeded   Completed\n")
    assert "1   Success after" in status
    assert fray.run("logs", "train", "--tail", "1", "--rank", "0").out == "[0/0] epoch 1\n"
    assert fray.run("logs", "train", "--host", "1", "--follow", "--tail", "1").out == "[0/1] Zürich\n"
    waited = fray.run("wait", "train")
    assert (waited.code, waited.err.startswith("train: Succeeded in ")) == (0, True)
    stopped = fray.run("stop", "train")
    assert (stopped.code, "is not running (it is Succeeded)" in stopped.err) == (0, True)
    explained = fray.run("explain", "train", "-o", "json")
    names = [item["metadata"]["name"] for item in json.loads(explained.out)["items"]]
    assert names == ["train", "train-a1"]


def test_a_job_that_fails_gives_its_exit_code(
    fray: Command, machine: Machine, operator: OperatorThread
) -> None:
    running = fray.start("run", "--name", "bad", "--retries", "1", "--", "train", "--steps", "3")
    for attempt in (1, 2):
        jobset, (pod,) = machine.start(f"bad-a{attempt}")
        machine.kubelet.write(pod, f"try {attempt}")
        machine.end(jobset, 7)
        machine.hands.collect_until(
            lambda number=attempt: any(
                each["number"] == number and each.get("verdict")
                for each in machine.hands.job("bad")["status"]["attempts"]
            )
        )
    ended = fray.finish(running)
    assert ended.code == 7, ended
    assert "bad: attempt 2 follows (retry 1 of 1)" in ended.err
    assert "bad: Failed after " in ended.err
    assert "next: fray logs bad --attempt 2 --rank 0" in ended.err
    asked = machine.hands.job("bad")["spec"]
    assert asked["entrypoint"]["command"] == ["train", "--steps", "3"]
    assert fray.run("wait", "bad").code == 7


def test_what_ends_the_command_does_not_end_the_job(fray: Command, hands: Hands) -> None:
    running = fray.start("run", "-f", fray.write_job(job_manifest("train", name="long")))
    assert running.stderr is not None
    read_until(running.stderr, "created in")
    running.send_signal(signal.SIGINT)
    ended = fray.finish(running)
    assert ended.code == 130
    assert "long runs on: `fray logs -f long` shows it, `fray stop long` ends it" in ended.err
    assert hands.job("long")["spec"]["stopped"] is False
    # One that lives is not replaced.
    again = fray.run("run", "-f", str(fray.folder / "long.json"))
    assert (again.code, "'long'" in again.err) == (2, True)


def test_output_that_can_not_be_written_does_not_end_the_job(
    fray: Command, machine: Machine, operator: OperatorThread
) -> None:
    with Path("/dev/full").open("wb") as full:
        running = fray.start("run", "--name", "full", "--", "train", stdout=full)
        _, (pod,) = machine.start("full-a1")
        machine.kubelet.write(pod, "a line")
        ended = fray.finish(running)
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == "full runs on; its output can't be shown: No space left on device"
    assert machine.hands.job("full")["spec"]["stopped"] is False


def test_a_job_is_stopped(fray: Command, machine: Machine, operator: OperatorThread) -> None:
    started = fray.run("run", "-d", "--env", "MODE=fast", "--replicas", "1", "python3", "train.py", "-v")
    assert started.code == 0, started.err
    machine.start("train-a1")
    variables = {
        each["name"]: each.get("value") for each in machine.hands.job("train")["spec"]["environment"]["env"]
    }
    assert variables["MODE"] == "fast"
    stopping = fray.start("stop", "train")
    machine.hands.await_job("train", lambda job: job["spec"].get("stopped"))
    machine.hands.collect_until(lambda: machine.hands.job("train")["status"].get("phase") == "Stopped")
    stopped = fray.finish(stopping)
    assert (stopped.code, stopped.err) == (0, "train: stopped\n")
    assert fray.run("wait", "train").code == 143


def test_a_command_in_a_host_is_asked_of_its_node(
    fray: Command, machine: Machine, operator: OperatorThread
) -> None:
    """A real API server speaks the protocol; this node only has logs, so it can't run anything."""
    assert fray.run("run", "-d", "--replicas", "2", "python3", "train.py").code == 0
    early = fray.run("exec", "train", "--", "true")
    assert early.code == 2
    assert "rank 0 of job 'train' doesn't run" in early.err
    machine.start("train-a1")
    eventually(lambda: machine.hands.job("train")["status"].get("attempts"))
    refused = fray.run("exec", "train", "--rank", "1", "--", "nvidia-smi", "-L")
    assert refused.code == 2
    assert "rank 1 of job 'train' can't run 'nvidia-smi'" in refused.err
    assert "has no rank 2" in fray.run("exec", "train", "--rank", "2", "--", "true").err


def test_a_function_goes_along(fray: Command, hands: Hands) -> None:
    (fray.folder / "training.py").write_text("def main(steps='1'):\n    print(steps)\n", encoding="utf-8")
    started = fray.run("run", "--detach", "training:main", "5")
    assert started.code == 0, started.err
    frayjobs = FrayJobs(hands.api, hands.namespace)
    asked = hands.job("training-main")["spec"]["entrypoint"]["callable"]
    assert asked["secretName"] in {each["metadata"]["name"] for each in secrets_of(frayjobs)}
    # A made-up name makes way.
    again = fray.run("run", "--detach", "training:main")
    assert again.err.startswith("training-main-2: created in ")


def test_the_end_is_waited_for_no_longer_than_asked(fray: Command, hands: Hands) -> None:
    frayjobs = FrayJobs(hands.api, hands.namespace)
    for name in ("one", "two"):
        hands.submit(name)
    late = fray.run("wait", "one", "two", "--timeout", "0.1")
    assert late.code == 124
    assert "not finished after 0.1 s: one, two" in late.err
    waiting = fray.start("wait", "one", "two")
    finish(frayjobs, "two", "Failed", exitCode=9, reason="NonZeroExit")
    finish(frayjobs, "one")
    ended = fray.finish(waiting)
    assert ended.code == 9
    told = [line.split(":")[0] for line in ended.err.splitlines()]
    assert [name for name in told if name in {"one", "two"}] == ["one", "two"]  # a busy server is told of too
    missing = fray.run("wait", "tow")
    assert missing.code == 2
    assert "two" in missing.err


def test_files_are_applied_as_kubectl_does(fray: Command, hands: Hands) -> None:
    one, two = (job_manifest("train", name=name) for name in ("one", "two"))
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "data"}}
    path = fray.write("jobs.yaml", one, config, two)
    applied = fray.run("apply", "-f", path)
    assert applied.code == 0, applied.err
    assert applied.out == "frayjob.fray.dev/one created\nfrayjob.fray.dev/two created\n"
    assert applied.err == "ConfigMap/data in the same file: left out; `kubectl apply` makes it\n"
    two["spec"]["suspend"] = True
    changed = fray.run("apply", "-f", fray.write("jobs.yaml", one, two))
    assert changed.out == "frayjob.fray.dev/one unchanged\nfrayjob.fray.dev/two configured\n"
    assert hands.job("two")["spec"]["suspend"] is True
    # Also what somebody else has made.
    assert hands.api.post(hands.jobs, job_manifest("train", name="three")).ok
    three = fray.run("apply", "-f", fray.write_job(job_manifest("train", name="three", suspend=True)))
    assert three.out == "frayjob.fray.dev/three configured\n", three.err
    one["spec"]["replicas"] = 3
    refused = fray.run("apply", "-f", fray.write("jobs.yaml", one))
    assert refused.code == 2
    assert "spec.replicas" in refused.err or "immutable" in refused.err
    elsewhere = job_manifest("train", name="far")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    contradiction = fray.run("apply", "-f", fray.write("jobs.yaml", elsewhere))
    assert contradiction.code == 2
    assert "metadata.namespace: is 'elsewhere'" in contradiction.err
    assert {each["metadata"]["name"] for each in hands.list(hands.jobs)} == {"one", "two", "three"}
    assert hands.job("one")["apiVersion"] == API_VERSION
    assert hands.job("one")["kind"] == FRAYJOB_KIND


def test_a_directory_is_applied_as_a_jobs_workspace(fray: Command, hands: Hands, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print('hello')")
    job = job_manifest("train", name="packed", environment={"image": "python:3.12", "workspace": str(code)})
    path = fray.write_job(job)
    assert [fray.run("apply", "-f", path).out for _ in range(2)] == [
        "frayjob.fray.dev/packed created\n",
        "frayjob.fray.dev/packed unchanged\n",
    ]
    workspace = hands.job("packed")["spec"]["environment"]["workspace"]
    secret = f"/api/v1/namespaces/{hands.namespace}/secrets/{workspace['secretName']}"
    # As after a call that ended between the job and its Secret.
    assert hands.api.delete(secret).ok
    assert fray.run("apply", "-f", path).out == "frayjob.fray.dev/packed unchanged\n"
    (owner,) = hands.api.get(secret).body["metadata"]["ownerReferences"]
    assert owner["uid"] == hands.job("packed")["metadata"]["uid"]
    (code / "train.py").write_text("print('other')")
    assert fray.run("apply", "-f", path).code == 2
    assert hands.job("packed")["spec"]["environment"]["workspace"] == workspace


def test_a_finished_job_makes_way_for_the_next_run_of_its_file(fray: Command, hands: Hands) -> None:
    path = fray.write_job(job_manifest("train", name="again"))
    spec = f"k8s?namespace={hands.namespace}&image=python:3.12&service_account=trainer"
    assert fray.run("run", "-d", "-f", path).code == 0
    finish(FrayJobs(hands.api, hands.namespace), "again")
    second = fray.run("run", "-d", "-f", path, "--cluster", spec)
    assert second.code == 0, second.err
    job = eventually(lambda: hands.job("again-2"))
    assert job["metadata"]["annotations"]["fray.dev/original-name"] == "again"
    assert (job["spec"]["environment"]["image"], job["spec"]["serviceAccountName"]) == (
        "python:3.12",
        "trainer",
    )
