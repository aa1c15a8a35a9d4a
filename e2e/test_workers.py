"""Worker pods: the same answer on each engine and while workers are taken away, and as many as are wanted."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.command import await_condition
from e2e.cluster.kubelets import kill_in_pod
from e2e.cluster.layout import BRIDGE_ADDRESS, Layout
from e2e.cluster.provider import crash_host, restore_host
from e2e.job_namespace import JobNamespace, build_job, open_job_namespace, until_told
from e2e.kubectl import Kubectl
from e2e.release import Release
from fray.plan.command import HEAD_MOUNT, KEYS_MOUNT
from fray.plan.manifests import find_condition
from fray.plan.workers import MOST_CRASHES
from fray.runtime.pool.transport.keys import ACCEPTED_FILE
from fray.runtime.pool.view import PoolView
from fray.vocabulary import (
    API_VERSION,
    AUTH_SECRET,
    CONTAINER,
    FRAYJOB_KIND,
    LABEL_JOB,
    LABEL_ROLE,
    POOL_HEAD_CONTAINER,
    POOL_PORTS,
    Role,
)
from fray_operator.auth_keys import AuthKeys, Step, apply_step, build_secret, parse_keys

ROTATION = (Step.PREPARE, Step.SWITCH, Step.FORGET)
"""Of the keys of a namespace, in this order."""
PROGRAMS = Path(__file__).parent / "programs"
WORD_COUNT = Path(__file__).parents[1] / "examples" / "wordcount"
ENGINES = ("fray", "dask")
"""Those whose pods are small; `ray` counts words beside them, and has `test_workers_ray.py`."""
OFFLINE = [{"name": name, "value": "1"} for name in ("UV_OFFLINE", "UV_NO_INDEX")]
"""The image has the packages of the example, and no network is needed."""
WITHOUT_DNS = {"spec": {"dnsPolicy": "None", "dnsConfig": {"nameservers": [BRIDGE_ADDRESS]}}}
"""Pods that ask this machine for names; see `take_questions`."""
DNS_PORT = 53
RANK_0_OF_ANY = {"cpu": "300m", "memory": "1Gi"}
WORKER_OF_ANY = {"cpu": "50m", "memory": "512Mi"}
"""Such that a job of each engine has room on one node; Ray starts a dozen processes in each pod."""
COUNT_WORDS = (PROGRAMS / "count_words.py").read_text(encoding="utf-8")
STRANGER = (PROGRAMS / "stranger.py").read_text(encoding="utf-8")
CANARY = "/var/run/fray/pool-head/canary"
"""Where the head may write."""
WITHOUT_KEYS = {"fray": {"by_plain_tcp", "by_bare_tls"}, "dask": {"by_dask_without_keys"}}
"""The ways of a stranger who has no keys at all, by the engine of the pool."""
WITH_KEYS = {"fray": {"by_own_keys"}, "dask": {"by_dask_with_own_keys"}}
"""Those that one with keys of another namespace has besides."""
PATIENCE = 240.0
RAY_PATIENCE = 600.0
"""Its dozen processes in each of four pods take minutes to start on a busy machine."""
BEGIN = "-----BEGIN CERTIFICATE-----"
HOLD = """
import os, socket, time
from pathlib import Path
from fray.job import get_default_job_ctx

def hold():
    if os.environ["JOB_COMPLETION_INDEX"] != "2":
        time.sleep(0.1)
        return ""
    Path("/tmp/held").touch()
    while not Path("/tmp/go").exists():
        time.sleep(0.1)
    return socket.gethostname()

ctx, found = get_default_job_ctx(), []
while not any(found):
    found = ctx.get([ctx.run(hold) for _ in range(3)])
print(max(found), flush=True)
"""
"""Has the worker of the highest of three indexes at work until it is let go, and the others idle."""
WAIT = ["sh", "-c", 'until test -e /tmp/go; do sleep 0.1; done; exec "$@"', "wait"]
"""Runs the command behind it once it is let go."""
SMALL = {"cpu": "100m", "memory": "128Mi"}
ROOM_OF_NO_NODE = {"cpu": "1000"}
ONE_ON_EACH_GPU_NODE = {
    "spec": {
        "nodeSelector": {"cloud.google.com/gke-nodepool": "gpu"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {LABEL_ROLE: Role.WORKER.value}},
            }
        ],
    }
}


def build_counting(name: str, seconds: float, workers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    command = ["python3", "-c", COUNT_WORDS, str(seconds)]
    return build_job(name, command, resources=SMALL, workers={"resources": SMALL, **workers}, **spec)


def pods_of(jobs: JobNamespace, job: str, role: Role) -> list[dict[str, Any]]:
    """The pods of a job that have a role and haven't ended."""
    selector = f"--selector={LABEL_JOB}={job},{LABEL_ROLE}={role}"
    pods = jobs.kubectl.items("pods", selector)
    return [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]


def uids_of(jobs: JobNamespace, job: str) -> set[str]:
    """Those of the workers' pods that haven't ended."""
    return {pod["metadata"]["uid"] for pod in pods_of(jobs, job, Role.WORKER)}


def await_pods(jobs: JobNamespace, job: str, count: int) -> None:
    """Wait until so many workers are wanted and there, ready or not."""
    jobs.await_workers(
        job, f"{count} are there", lambda told: told.get("desired") == told.get("replicas") == count
    )


def await_ready(jobs: JobNamespace, job: str, count: int, *, seconds: float = PATIENCE) -> None:
    jobs.await_workers(
        job,
        f"{count} are ready, no other is there",
        lambda told: told.get("ready") == count and len(pods_of(jobs, job, Role.WORKER)) == count,
        seconds=seconds,
    )


def await_replaced(
    jobs: JobNamespace, job: str, *lost: dict[str, Any], count: int, seconds: float = PATIENCE
) -> None:
    """Wait until so many workers are ready, none of which is one of these pods."""
    gone = {pod["metadata"]["uid"] for pod in lost}

    def are_replaced() -> bool:
        there = pods_of(jobs, job, Role.WORKER)
        # The status may be one from before they were lost.
        ready = sum(bool(find_condition(pod, "Ready", status="True")) for pod in there)
        return (
            jobs.workers(job).get("ready") == ready == count
            and not {pod["metadata"]["uid"] for pod in there} & gone
        )

    await_condition("those that were lost are replaced", are_replaced, timeout=seconds, details=jobs.describe)


def let_go(jobs: JobNamespace, job: str) -> None:
    """Let the program end after its round, in all ranks; rank 0, with which the pool ends, is the last."""
    first, *others = sorted(pod["metadata"]["name"] for pod in pods_of(jobs, job, Role.HOST))
    for name in (*others, first):
        if name == first:
            await_condition(
                "rank 0 is alone",
                lambda: len(pods_of(jobs, job, Role.HOST)) == 1,
                timeout=PATIENCE,
                details=jobs.describe,
            )
        jobs.kubectl("exec", name, f"--container={CONTAINER}", "--", "sh", "-c", "echo $$ > /tmp/go")


def read_view(jobs: JobNamespace, job: str) -> PoolView:
    """What `fray top` shows of the pool of a job."""
    words, environ = jobs.fray("top", job, "--json")
    ran = subprocess.run(words, env=environ, capture_output=True, timeout=PATIENCE, check=True)
    return PoolView.from_json(ran.stdout)


def joins_by_socket(jobs: JobNamespace, job: str) -> bool:
    """Whether the head of a job has a connection at its socket, as the kernel of rank 0's pod tells."""
    (rank_0,) = pods_of(jobs, job, Role.HOST)
    read = (f"--container={CONTAINER}", "--", "cat", "/proc/net/unix")
    rows = [row.split() for row in jobs.kubectl("exec", rank_0["metadata"]["name"], *read).splitlines()]
    # proc(5): the state stands before the inode and the path; 03 is that of a connection.
    return any(row[-1].startswith(HEAD_MOUNT) and row[-3] == "03" for row in rows)


def hosts_of(view: PoolView) -> set[str]:
    """The names of the hosts that have workers."""
    return {host.name for host in view.hosts if host.workers + host.starting}


def answers(jobs: JobNamespace, job: str) -> list[dict[str, Any]]:
    """What `count_words.py` printed on each rank."""
    return [json.loads(log.splitlines()[-1]) for log in jobs.logs(job)]


def read_keys(jobs: JobNamespace) -> AuthKeys:
    """The keys of the namespace's pools."""
    keys = parse_keys(jobs.kubectl.get("secret", AUTH_SECRET))
    assert keys is not None
    return keys


def replace_keys(jobs: JobNamespace, step: Step, *names: str) -> None:
    """Take a step of a rotation, and wait until every pod of these jobs has the keys."""
    keys = apply_step(read_keys(jobs), step, now=datetime.now(UTC))
    jobs.kubectl("apply", "--filename=-", stdin=json.dumps(build_secret(keys, namespace=jobs.name)))
    await_condition(
        f"all pods have the keys of step {step.value}",
        lambda: all(set(accepted_keys(jobs, name)) == {keys.accepted} for name in names),
        timeout=PATIENCE,
        details=jobs.describe,
    )


def read_rounds(jobs: JobNamespace, job: str) -> list[set[str]]:
    """The hosts that ran tasks in each round that `count_words.py` has done in rank 0."""
    rank_0 = min(pod["metadata"]["name"] for pod in pods_of(jobs, job, Role.HOST))
    # The file comes with the first round.
    read = (f"--container={CONTAINER}", "--", "sh", "-c", "if test -e /tmp/rounds; then cat /tmp/rounds; fi")
    return [set(line.split()) for line in jobs.kubectl("exec", rank_0, *read).splitlines()]


def await_rounds(jobs: JobNamespace, *names: str) -> None:
    """Wait until `count_words.py` has begun and done a further round in rank 0 of each of these jobs."""
    # The first that ends from here on may have begun before.
    wanted = {name: len(read_rounds(jobs, name)) + 2 for name in names}
    await_condition(
        f"{', '.join(names)} count on",
        lambda: all(len(read_rounds(jobs, name)) >= count for name, count in wanted.items()),
        timeout=PATIENCE,
        details=jobs.describe,
    )


def accepted_keys(jobs: JobNamespace, job: str) -> list[tuple[bytes, ...]]:
    """The certificates that each pod of a job accepts, as its kubelet has brought them."""
    read = (f"--container={CONTAINER}", "--", "cat", f"{KEYS_MOUNT}/{ACCEPTED_FILE}")
    pods = pods_of(jobs, job, Role.HOST) + pods_of(jobs, job, Role.WORKER)
    texts = [jobs.kubectl("exec", pod["metadata"]["name"], *read) for pod in pods]
    return [tuple(f"{BEGIN}{part}".encode() for part in text.split(BEGIN)[1:]) for text in texts]


@contextmanager
def take_questions() -> Iterator[None]:
    """Take the questions of pods `WITHOUT_DNS`, and answer none.

    Ray asks for hosts outside of the cluster, beside what it does.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((BRIDGE_ADDRESS, DNS_PORT))
        yield


def start_word_count(jobs: JobNamespace, folder: Path, engine: str, image: str) -> None:
    """Start the example in a job that has the engine's name, and whose program waits to be let go.

    But for the engine's line, the jobs are the same.
    """
    job = yaml.safe_load((folder / "workers.yaml").read_text(encoding="utf-8"))
    job["spec"]["workers"]["engine"] = engine
    job["spec"]["entrypoint"]["command"] = [*WAIT, *job["spec"]["entrypoint"]["command"]]
    job["spec"]["environment"] |= {"env": OFFLINE, "image": image}
    job["spec"] |= {"resources": RANK_0_OF_ANY, "podTemplate": WITHOUT_DNS}
    job["spec"]["workers"] |= {"resources": WORKER_OF_ANY, "podTemplate": WITHOUT_DNS}
    path = folder / f"{engine}.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    words, environ = jobs.fray("run", "--detach", f"--file={path}", f"--name={engine}")
    subprocess.run(words, env=environ, check=True, timeout=PATIENCE)


@pytest.mark.timeout(1800, func_only=True)
def test_the_word_count_has_the_same_answer_on_every_engine(
    jobs: JobNamespace, engines_image: str, tmp_path: Path
) -> None:
    """No pod can look up a name: where the head of its pool is, the API server says."""
    folder = tmp_path / "wordcount"
    shutil.copytree(WORD_COUNT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    every = (*ENGINES, "ray")
    with take_questions():
        for engine in reversed(every):  # the one that takes the longest begins
            start_word_count(jobs, folder, engine, engines_image)
        for engine in every:
            await_ready(jobs, engine, 3, seconds=RAY_PATIENCE)
            let_go(jobs, engine)
        ended = {engine: jobs.await_end(engine, seconds=RAY_PATIENCE) for engine in every}
    tables = {}
    for engine, status in ended.items():
        assert (status["phase"], len(status["attempts"])) == ("Succeeded", 1), status
        table, seconds = jobs.logs(engine)[0].rpartition(" files: ")[::2]
        assert seconds.endswith(" s\n"), table
        tables[engine] = table[table.index(" word ") :]
    assert len(set(tables.values())) == 1, tables


@pytest.mark.parametrize("engine", ENGINES)
def test_the_answer_is_the_same_while_workers_are_evicted_and_killed(
    jobs: JobNamespace, layout: Layout, engine: str
) -> None:
    job = f"words-{engine}"
    jobs.submit(build_counting(job, 0.2, {"replicas": 3, "engine": engine}))
    await_ready(jobs, job, 3)
    evicted, killed, kept = pods_of(jobs, job, Role.WORKER)
    jobs.evict(evicted["metadata"]["name"])
    host = layout.host_named(killed["spec"]["nodeName"])
    assert kill_in_pod(host, killed["metadata"]["uid"], "python")
    await_replaced(jobs, job, evicted, killed, count=3)
    if engine == "fray":
        shown = read_view(jobs, job)
        assert hosts_of(shown) == {pod["spec"]["hostname"] for pod in pods_of(jobs, job, Role.WORKER)}
        assert {function.name for function in shown.functions if function.done} == {"count"}
        assert joins_by_socket(jobs, job)
    let_go(jobs, job)
    status = jobs.await_end(job)
    assert (status["phase"], len(status["attempts"])) == ("Succeeded", 1), status
    assert status["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}
    assert pods_of(jobs, job, Role.WORKER) == []
    (answer,) = answers(jobs, job)
    assert (answer["wrong"], answer["rounds"] > 1) == (0, True)
    assert kept["spec"]["hostname"] in answer["hosts"]


def test_the_answer_is_the_same_while_a_node_is_lost(jobs: JobNamespace, layout: Layout) -> None:
    jobs.submit(build_counting("node", 0.2, {"replicas": 2, "podTemplate": ONE_ON_EACH_GPU_NODE}))
    await_ready(jobs, "node", 2)
    lost, kept = pods_of(jobs, "node", Role.WORKER)
    host = layout.host_named(lost["spec"]["nodeName"])
    assert host.name != kept["spec"]["nodeName"]
    crash_host(host)
    try:
        let_go(jobs, "node")
        status = jobs.await_end("node")
    finally:
        restore_host(host)
    assert (status["phase"], len(status["attempts"])) == ("Succeeded", 1), status
    assert status["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}
    (answer,) = answers(jobs, "node")
    assert answer["wrong"] == 0
    assert kept["spec"]["hostname"] in answer["hosts"]


def test_workers_come_and_go_with_the_work(jobs: JobNamespace) -> None:
    elastic = {"maxReplicas": 4, "idleSeconds": 3}
    script = (
        "import time\n"
        "from pathlib import Path\n"
        "from fray.job import get_default_job_ctx\n"
        "ctx = get_default_job_ctx()\n"
        "print(len(ctx.get([ctx.run(time.sleep, 4) for _ in range(10)])), flush=True)\n"
        "go = Path('/tmp/go')\n"
        "while not (go.exists() and (pid := go.read_text().strip()) and not Path('/proc', pid).exists()):\n"
        "    time.sleep(0.1)\n"
    )
    command = ["python3", "-c", script]
    job = build_job("waves", command, resources=SMALL, workers={"resources": SMALL, **elastic})
    jobs.submit(job)
    jobs.await_workers("waves", "as many as may be", lambda told: told.get("ready") == 4)
    await_ready(jobs, "waves", 0)
    let_go(jobs, "waves")
    assert jobs.await_end("waves")["phase"] == "Succeeded"


def test_kubectl_scales_the_workers_of_a_gang_whose_ranks_all_submit(jobs: JobNamespace) -> None:
    jobs.submit(build_counting("gang", 0.1, {"replicas": 1}, replicas=2))
    await_ready(jobs, "gang", 1)
    jobs.kubectl("scale", "frayjob/gang", "--replicas=2")
    await_ready(jobs, "gang", 2)
    jobs.kubectl("scale", "frayjob/gang", "--replicas=1")
    await_ready(jobs, "gang", 1)
    let_go(jobs, "gang")
    assert jobs.await_end("gang")["phase"] == "Succeeded"
    assert [answer["wrong"] for answer in answers(jobs, "gang")] == [0, 0]


def test_of_workers_that_users_want_no_more_idle_ones_go_and_one_at_work_ends_its_task(
    jobs: JobNamespace,
) -> None:
    """The one at work has the highest index, which a Job by itself gives up first."""
    command = ["python3", "-c", HOLD]
    workers = {"replicas": 3, "resources": SMALL}
    jobs.submit(build_job("held", command, resources=SMALL, workers=workers))
    await_ready(jobs, "held", 3)
    busy = max(pods_of(jobs, "held", Role.WORKER), key=lambda pod: str(pod["spec"]["hostname"]))
    within = ("exec", busy["metadata"]["name"], f"--container={CONTAINER}", "--")
    await_condition(
        "its task runs",
        lambda: "held" in jobs.kubectl(*within, "ls", "/tmp").split(),
        timeout=PATIENCE,
        details=jobs.describe,
    )
    jobs.kubectl("scale", "frayjob/held", "--replicas=1")
    await_condition(
        "the others are gone",
        lambda: (
            [pod["metadata"]["uid"] for pod in pods_of(jobs, "held", Role.WORKER)]
            == [busy["metadata"]["uid"]]
        ),
        timeout=PATIENCE,
        details=jobs.describe,
    )
    jobs.kubectl(*within, "touch", "/tmp/go")
    assert jobs.await_end("held")["phase"] == "Succeeded"
    (log,) = jobs.logs("held")
    assert log.splitlines()[-1] == busy["spec"]["hostname"]


@pytest.mark.timeout(1800, func_only=True)
def test_a_hundred_steps_up_and_down_lose_no_task_and_end_no_busy_worker(jobs: JobNamespace) -> None:
    """Users write the number, and the head chooses who goes: each ends its tasks before it does."""
    chance, count = random.Random(16), 2
    jobs.submit(build_counting("steps", 0.05, {"replicas": count}))
    await_ready(jobs, "steps", count)
    for step in range(1, 101):
        count = chance.choice([other for other in range(5) if other != count])
        jobs.kubectl("scale", "frayjob/steps", f"--replicas={count}")
        time.sleep(chance.uniform(0.2, 1.5))  # some steps are done by then, others overtaken by the next
        if step % 10 == 0:
            await_pods(jobs, "steps", count)
            await_ready(jobs, "steps", count)
    jobs.kubectl("scale", "frayjob/steps", "--replicas=2")
    await_ready(jobs, "steps", 2)
    counters = read_view(jobs, "steps").counters
    assert (counters["retried"], counters["preempted"]) == (0, 0), counters
    let_go(jobs, "steps")
    status = jobs.await_end("steps")
    assert (status["phase"], len(status["attempts"])) == ("Succeeded", 1), status
    assert status["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}
    (answer,) = answers(jobs, "steps")
    assert (answer["wrong"], answer["rounds"] > 10) == (0, True)


def test_an_autoscaler_reads_and_writes_the_scale_of_workers(jobs: JobNamespace) -> None:
    """Without a metrics server it still keeps them within its own range."""
    jobs.submit(build_counting("scaled", 0.1, {"replicas": 1}))
    await_ready(jobs, "scaled", 1)
    target = {"apiVersion": API_VERSION, "kind": FRAYJOB_KIND, "name": "scaled"}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    metrics = [{"type": "Resource", "resource": cpu}]
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaled"},
        "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3, "metrics": metrics},
    }
    jobs.kubectl.apply(autoscaler)
    await_ready(jobs, "scaled", 2)

    def read_conditions() -> dict[str, str]:
        status = jobs.kubectl.get("horizontalpodautoscaler", "scaled").get("status", {})
        return {each["type"]: each["reason"] for each in status.get("conditions", [])}

    # It asks for metrics of the pods that the scale's selector names, so it has that.
    await_condition(
        "it has the scale, and looks for the metrics of the pods",
        lambda: read_conditions().get("ScalingActive") == "FailedGetResourceMetric",
        timeout=PATIENCE,
        details=lambda: f"{read_conditions()}\n{jobs.describe()}",
    )
    assert read_conditions()["AbleToScale"] == "SucceededGetScale"
    let_go(jobs, "scaled")
    assert jobs.await_end("scaled")["phase"] == "Succeeded"


def test_keys_are_replaced_while_workers_count(jobs: JobNamespace) -> None:
    """Each write of a rotation, as the operator makes them ten minutes apart, once every pod has the last.

    Engine fray takes further workers after each of them; Dask keeps its keys, and those that it has.
    """
    jobs.submit(build_counting("keys", 0.1, {"replicas": 1}))
    jobs.submit(build_counting("keys-dask", 0.1, {"replicas": 2, "engine": "dask"}))
    await_ready(jobs, "keys", 1)
    await_ready(jobs, "keys-dask", 2)
    before, kept = read_keys(jobs), uids_of(jobs, "keys-dask")
    for count, step in enumerate(ROTATION, start=2):
        replace_keys(jobs, step, "keys", "keys-dask")
        jobs.kubectl("scale", "frayjob/keys", f"--replicas={count}")
        await_ready(jobs, "keys", count)
        await_rounds(jobs, "keys", "keys-dask")
    after = read_keys(jobs)
    assert after.accepted == (after.shown.certificate,) != before.accepted
    assert uids_of(jobs, "keys-dask") == kept
    for job, hosts in (("keys", 4), ("keys-dask", 2)):
        let_go(jobs, job)
        status = jobs.await_end(job)
        assert (status["phase"], len(status["attempts"])) == ("Succeeded", 1), status
        assert status["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}
        (answer,) = answers(jobs, job)
        assert (answer["wrong"], len(answer["hosts"])) == (0, hosts)


def test_a_job_whose_workers_have_no_room_runs_on_and_says_so(jobs: JobNamespace) -> None:
    workers = {"replicas": 1, "resources": ROOM_OF_NO_NODE}
    jobs.submit(build_job("alone", ["sh", "-c", until_told()], resources=SMALL, workers=workers))
    jobs.await_job("alone", "condition=Running")
    await_condition(
        "the condition tells why",
        lambda: "Insufficient cpu" in jobs.condition("alone", "WorkersReady").get("message", ""),
        timeout=PATIENCE,
        details=jobs.describe,
    )
    jobs.tell("alone")
    assert jobs.await_end("alone")["phase"] == "Succeeded"
    jobs.kubectl("delete", "frayjob", "alone")
    for left in ("jobs", "networkpolicies", "pods"):
        jobs.kubectl.wait(left, "delete", seconds=PATIENCE, selector=f"{LABEL_JOB}=alone")


def test_workers_that_all_crash_before_any_joins_end_the_attempt_with_the_story(jobs: JobNamespace) -> None:
    spoilt = {"env": [{"name": "PYTHONHOME", "value": "/nowhere"}]}
    jobs.submit(build_counting("crashing", 0.1, {"replicas": MOST_CRASHES, "environment": spoilt}))
    (attempt,) = jobs.await_end("crashing")["attempts"]
    assert (attempt["verdict"], attempt["reason"]) == ("Failure", "WorkersFailed"), attempt
    assert f"crashed {MOST_CRASHES} times, and none took a task" in attempt["message"]
    assert "encodings" in "".join(attempt["logTail"]), "the end of the last one's log"
    assert pods_of(jobs, "crashing", Role.WORKER) == []


def test_a_worker_without_the_package_of_its_engine_ends_the_job_at_once(jobs: JobNamespace) -> None:
    """Its `python3` isn't the one that has Dask, and one worker's index would wait longer with each crash."""
    other = {"env": [{"name": "PATH", "value": "/usr/local/bin:/usr/bin:/bin"}]}
    workers = {"replicas": 1, "engine": "dask", "environment": other}
    jobs.submit(build_counting("unfit", 0.1, workers, retries={"failures": 3}))
    (attempt,) = jobs.await_end("unfit")["attempts"]
    assert (attempt["verdict"], attempt["reason"]) == ("Failure", "WorkerImageMismatch"), attempt
    assert "Add `distributed` to the image, or to spec.environment.pipPackages" in attempt["message"]
    assert pods_of(jobs, "unfit", Role.WORKER) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_strangers_get_nowhere(jobs: JobNamespace, kubectl: Kubectl, release: Release, engine: str) -> None:
    guarded, neighbour = f"guarded-{engine}", f"neighbour-{engine}"
    jobs.submit(build_counting(guarded, 0.1, {"replicas": 1, "engine": engine}))
    await_ready(jobs, guarded, 1)
    (rank_0,) = pods_of(jobs, guarded, Role.HOST)
    head = f"--container={POOL_HEAD_CONTAINER}"
    words = ["python3", "-c", STRANGER, f"{rank_0['status']['podIP']}:{POOL_PORTS[0]}", CANARY, engine]
    # A job of the same namespace that has no part in any pool, and so none of its keys.
    jobs.submit(build_job(neighbour, words, resources=SMALL))
    with open_job_namespace(kubectl, release) as others:
        # With keys of its own namespace, as a job that may have workers.
        others.run(build_job("stranger", words, resources=SMALL, workers={"maxReplicas": 1}))
        (tried,) = answers(others, "stranger")
    assert jobs.await_end(neighbour)["phase"] == "Succeeded"
    (tried_beside,) = answers(jobs, neighbour)
    without_keys = WITHOUT_KEYS[engine]
    assert (set(tried), set(tried_beside)) == (without_keys | WITH_KEYS[engine], without_keys)
    assert {*tried.values(), *tried_beside.values()} <= {"refused", "unreachable"}, (tried, tried_beside)
    listed = f"import os; print(os.listdir({str(Path(CANARY).parent)!r}))"
    assert "canary" not in jobs.kubectl(
        "exec", rank_0["metadata"]["name"], head, "--", "python3", "-c", listed
    )
    assert jobs.job(guarded)["status"]["phase"] == "Running"
    let_go(jobs, guarded)
    assert jobs.await_end(guarded)["phase"] == "Succeeded"


def test_a_lost_head_ends_the_attempt(jobs: JobNamespace, layout: Layout) -> None:
    jobs.submit(build_counting("headless", 0.1, {"replicas": 1}))
    await_ready(jobs, "headless", 1)
    (rank_0,) = pods_of(jobs, "headless", Role.HOST)
    host = layout.host_named(rank_0["spec"]["nodeName"])
    assert kill_in_pod(host, rank_0["metadata"]["uid"], "pool.head_pod")
    status = jobs.await_end("headless")
    assert (status["phase"], len(status["attempts"])) == ("Failed", 1), status
    assert "PoolClosedError" in jobs.logs("headless")[0]
    assert pods_of(jobs, "headless", Role.WORKER) == []
