"""Pods of a job with workers have the pool's keys; hosts its head too, and workers a probe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.plan.worker_job import build_worker_job
from fray.runtime.pool.transport.addresses import Address
from fray.testing import build_frayjob
from fray.vocabulary import (
    AUTH_SECRET,
    ENV_POOL_HEAD,
    ENV_POOL_KEY,
    ENV_POOL_METRICS,
    ENV_POOL_OBJECTS,
    ENV_POOL_SOCKET,
    ENV_POOL_STATE,
    ENV_WORKERS_ENGINE,
    ENV_WORKERS_IDLE_SECONDS,
    ENV_WORKERS_MAX,
    ENV_WORKERS_MIN,
    ENV_WORKERS_SHAPE,
    POOL_DEMAND_CONTAINER,
    POOL_HEAD_CONTAINER,
    POOL_METRICS_PORT,
    POOL_METRICS_PORT_NAME,
    POOL_PORTS,
)
from tests.unit.plan.jobset_rules import find_violations, main_container, pod_template

SETTINGS = PlanSettings(image="runtime:7", injector_image="operator:7")
BARE = PlanSettings(image="runtime:7", injector_image=None)
POOLED = (ENV_POOL_HEAD, ENV_POOL_KEY, ENV_POOL_OBJECTS)


def hosts(settings: PlanSettings = SETTINGS, **spec: Any) -> dict[str, Any]:
    jobset = build_attempt(build_frayjob(**spec), attempt=1, settings=settings).jobset
    assert find_violations(jobset) == []
    pod: dict[str, Any] = pod_template(jobset)["spec"]
    return pod


def workers(settings: PlanSettings = SETTINGS, **spec: Any) -> dict[str, Any]:
    made = build_worker_job(build_frayjob(**spec), attempt=1, generation=1, count=1, settings=settings)
    pod: dict[str, Any] = made.manifest["spec"]["template"]["spec"]
    return pod


def find_head(pod: dict[str, Any]) -> dict[str, Any] | None:
    found = [one for one in pod.get("initContainers", []) if one["name"] == POOL_HEAD_CONTAINER]
    return found[0] if found else None


def head_of(**spec: Any) -> dict[str, Any]:
    head = find_head(hosts(**spec))
    assert head is not None
    return head


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in container["env"]}


def test_a_job_without_workers_has_nothing_of_a_pool() -> None:
    pod = hosts(workers={"maxReplicas": 0})
    assert find_head(pod) is None
    assert [volume["name"] for volume in pod["volumes"]] == ["shm"]
    assert not set(POOLED) & set(variables(pod["containers"][0]))


def test_a_callable_without_workers_can_call_actors_and_does_not_wait_for_the_keys() -> None:
    payload = {"secretName": "train-payload", "sha256": "0" * 64, "python": "3.12"}
    pod = hosts(entrypoint={"callable": payload})
    assert find_head(pod) is None
    (main,) = pod["containers"]
    directory = variables(main)[ENV_POOL_KEY]
    assert not {ENV_POOL_HEAD, ENV_POOL_OBJECTS} & set(variables(main))
    (mount,) = [each for each in main["volumeMounts"] if each["mountPath"] == directory]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert volume["secret"] == {"secretName": AUTH_SECRET, "defaultMode": 0o444, "optional": True}


def test_hosts_and_workers_find_the_same_head_with_the_same_keys() -> None:
    asked = {"workers": {"replicas": 1}}
    of_hosts, of_workers = hosts(**asked), workers(**asked)
    head = find_head(of_hosts)
    assert head is not None
    assert find_head(of_workers) is None
    told = [variables(each) for each in (of_hosts["containers"][0], of_workers["containers"][0], head)]
    for name in POOLED:
        assert told[0][name] == told[1][name] == told[2][name] != ""
    assert told[0][ENV_POOL_HEAD] == "rank-0:7077"
    assert told[0][ENV_POOL_OBJECTS] == "tcp:$(FRAY_POD_IP):7078-7095"
    for pod in (of_hosts, of_workers):
        (keys,) = [volume for volume in pod["volumes"] if "secret" in volume]
        assert keys["secret"]["secretName"] == AUTH_SECRET
    for container in (of_hosts["containers"][0], of_workers["containers"][0], head):
        (mount,) = [each for each in container["volumeMounts"] if each["name"] == keys["name"]]
        assert mount == {"name": keys["name"], "mountPath": told[0][ENV_POOL_KEY], "readOnly": True}


def test_a_variable_refers_only_to_earlier_ones() -> None:
    """The kubelet leaves `$(NAME)` as it is where NAME comes later, and a user can't move Fray's own."""
    env = [{"name": "FRAY_POD_IP", "value": "6.6.6.6"}]
    container = hosts(workers={"replicas": 1}, environment={"env": env})["containers"][0]
    names = [each["name"] for each in container["env"]]
    assert names.index("FRAY_POD_IP") < names.index(ENV_POOL_OBJECTS)
    assert "value" not in container["env"][names.index("FRAY_POD_IP")]


def test_the_head_runs_in_the_runtimes_image_and_knows_nothing_of_the_users() -> None:
    env = [{"name": "TOKEN", "value": "secret"}]
    head = head_of(workers={"replicas": 1}, environment={"image": "mine", "env": env})
    assert (head["image"], head["restartPolicy"]) == ("runtime:7", "Always")
    assert head["command"][-1] == "fray.runtime.pool.head_pod"
    assert "TOKEN" not in variables(head)
    state = variables(head)[ENV_POOL_STATE]
    assert {"name": POOL_HEAD_CONTAINER, "mountPath": state} in head["volumeMounts"]


def test_a_program_reaches_the_heads_socket_in_a_volume_that_the_head_alone_writes_to() -> None:
    pod = hosts(workers={"replicas": 1})
    (main,), head = pod["containers"], find_head(pod)
    assert head is not None
    told = variables(main)[ENV_POOL_SOCKET]
    assert told == variables(head)[ENV_POOL_SOCKET]
    socket = Address.parse(told)
    assert socket.of_pod
    (volume,) = [each for each in pod["volumes"] if each["name"] == POOL_HEAD_CONTAINER]
    assert volume == {"name": POOL_HEAD_CONTAINER, "emptyDir": {}}
    mount = {"name": volume["name"], "mountPath": str(Path(socket.path).parent)}
    assert mount in head["volumeMounts"]
    assert {**mount, "readOnly": True} in main["volumeMounts"]


@pytest.mark.parametrize("engine", ["fray", "dask", "ray"])
def test_no_worker_and_no_other_engine_has_the_heads_socket(engine: str) -> None:
    asked = {"workers": {"replicas": 1, "maxReplicas": 9, "engine": engine}}
    pod, worker = hosts(**asked), workers(**asked)["containers"][0]
    containers = [worker] if engine == "fray" else [worker, *pod["containers"], *pod["initContainers"]]
    assert not any(ENV_POOL_SOCKET in variables(each) for each in containers if "env" in each)
    for each in [worker] if engine == "fray" else [worker, *pod["containers"]]:
        assert POOL_HEAD_CONTAINER not in {mount["name"] for mount in each["volumeMounts"]}


def test_the_head_shows_the_pool_at_a_port_that_the_jobs_policy_leaves_open() -> None:
    head = head_of(workers={"replicas": 1})
    (port,) = head["ports"]
    assert variables(head)[ENV_POOL_METRICS] == str(POOL_METRICS_PORT)
    assert port == {"name": POOL_METRICS_PORT_NAME, "containerPort": POOL_METRICS_PORT}
    assert not POOL_PORTS[0] <= POOL_METRICS_PORT <= POOL_PORTS[1]
    assert len(POOL_METRICS_PORT_NAME) <= 15  # Kubernetes takes no longer ones


def test_where_no_runtime_is_brought_the_jobs_image_has_it() -> None:
    pod = hosts(BARE, workers={"replicas": 1}, environment={"image": "mine"})
    head = find_head(pod)
    assert head is not None
    assert (head["image"], head["command"]) == ("mine", ["python3", "-m", "fray.runtime.pool.head_pod"])


def test_the_head_starts_after_the_runtime_was_brought_and_before_the_users_own() -> None:
    overlay = {"spec": {"initContainers": [{"name": "before", "image": "x"}]}}
    pod = hosts(workers={"replicas": 1}, environment={"image": "mine"}, podTemplate=overlay)
    assert [one["name"] for one in pod["initContainers"]] == ["fray-runtime", POOL_HEAD_CONTAINER, "before"]


def test_a_user_gives_the_head_more_by_its_name() -> None:
    more = {"name": POOL_HEAD_CONTAINER, "resources": {"requests": {"memory": "4Gi"}}}
    head = head_of(workers={"replicas": 1}, podTemplate={"spec": {"initContainers": [more]}})
    assert head["resources"] == {"requests": {"cpu": "100m", "memory": "4Gi"}}
    assert head["restartPolicy"] == "Always"


def test_the_head_takes_nothing_from_hosts_that_ask_for_a_whole_machine() -> None:
    assert "resources" not in head_of(workers={"replicas": 1}, resources={"tpu": {"type": "v6e-8"}})


def test_the_head_asks_for_workers_only_where_their_number_is_bounded() -> None:
    names = {ENV_WORKERS_MIN, ENV_WORKERS_MAX, ENV_WORKERS_IDLE_SECONDS, ENV_WORKERS_SHAPE}
    # Else it lets those go that are more than users ask for.
    told = variables(head_of(workers={"replicas": 4, "minReplicas": 2, "resources": {"cpu": "4"}}))
    assert {name: told[name] for name in names & told.keys()} == {ENV_WORKERS_MIN: "2"}
    asked = {"minReplicas": 1, "maxReplicas": 9, "idleSeconds": 5, "resources": {"cpu": "4"}}
    told = variables(head_of(workers=asked))
    assert {name: told[name] for name in names} == {
        ENV_WORKERS_MIN: "1",
        ENV_WORKERS_MAX: "9",
        ENV_WORKERS_IDLE_SECONDS: "5",
        ENV_WORKERS_SHAPE: "CPU=4",
    }


@pytest.mark.parametrize(
    ("resources", "offer"),
    [
        ({}, None),
        ({"memory": "1Gi"}, None),
        ({"cpu": "500m"}, "CPU=1"),
        ({"cpu": "3500m", "memory": "8Gi"}, "CPU=3,memory=8589934592"),
        ({"cpu": 8, "gpu": {"type": "nvidia-l4", "count": 2}}, "CPU=8,gpu=2"),
        ({"cpu": 8, "tpu": {"type": "v6e-4"}}, "CPU=8,tpu=4"),
    ],
)
def test_a_worker_offers_what_it_asks_for(resources: dict[str, Any], offer: str | None) -> None:
    """Not what its node has, which a pod without limits sees."""
    pod = workers(workers={"replicas": 1, "resources": resources})
    assert variables(pod["containers"][0]).get(ENV_WORKERS_SHAPE) == offer


def test_a_worker_is_ready_once_it_says_so_and_hosts_at_once() -> None:
    asked = {"workers": {"replicas": 1}}
    probe = workers(**asked)["containers"][0]["readinessProbe"]
    assert probe["httpGet"] == {"path": "/ready", "port": 7096}
    assert "initialDelaySeconds" not in probe
    assert "readinessProbe" not in main_container(
        build_attempt(build_frayjob(**asked), attempt=1, settings=SETTINGS).jobset
    )


def test_the_scheduler_of_dask_runs_in_the_jobs_image_with_its_packages_and_variables() -> None:
    env = [{"name": "UV_INDEX_URL", "value": "https://packages"}]
    workspace = {"secretName": "code", "sha256": "0" * 64}
    environment = {"image": "mine", "env": env, "pipPackages": ["distributed"], "workspace": workspace}
    pod = hosts(workers={"maxReplicas": 9, "engine": "dask"}, environment=environment)
    head = find_head(pod)
    assert head is not None
    assert (head["image"], head["restartPolicy"]) == ("mine", "Always")
    assert head["command"][-3:] == ["run", "fray.job.dask_pods", "scheduler"]
    assert "--package=distributed" in head["command"]
    told = variables(head)
    assert told["UV_INDEX_URL"] == "https://packages"
    assert told[ENV_WORKERS_MAX] == "9"
    assert [each["name"] for each in head["env"]] == list(told)
    # Two containers that unpack into one folder would disturb each other.
    (own,) = [each for each in head["volumeMounts"] if each["mountPath"] == "/var/run/fray/workspace"]
    (mains,) = [
        each
        for each in pod["containers"][0]["volumeMounts"]
        if each["mountPath"] == "/var/run/fray/workspace"
    ]
    assert own["name"] != mains["name"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {each["name"] for each in head["volumeMounts"]} <= volumes


def test_processes_of_engine_dask_find_the_scheduler_by_dasks_own_configuration() -> None:
    asked = {"workers": {"replicas": 1, "engine": "dask"}}
    main, worker = hosts(**asked)["containers"][0], workers(**asked)["containers"][0]
    assert variables(main)["DASK_SCHEDULER_ADDRESS"] == "tls://train-a1-slice-0-0.train-a1:7077"
    for container in (main, worker):
        told = variables(container)
        assert told[ENV_WORKERS_ENGINE] == "dask"
        assert told["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
        (mount,) = [each for each in container["volumeMounts"] if "secrets/fray" in each["mountPath"]]
        assert told["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] == f"{mount['mountPath']}/accepted.crt"
    assert worker["command"][-2:] == ["fray.job.dask_pods", "worker"]
    assert not any("DASK" in name for name in variables(hosts(workers={"replicas": 1})["containers"][0]))


def test_each_rank_starts_its_part_of_ray_before_its_program() -> None:
    environment = {"image": "mine", "pipPackages": ["ray"], "setup": ["true"]}
    pod = hosts(workers={"replicas": 1, "engine": "ray"}, environment=environment)
    (main,) = pod["containers"]
    # Behind the packages and the setup, of which Ray may be one.
    begun = main["command"].index("fray.job.ray_pods")
    assert main["command"].index("--package=ray") < main["command"].index("setup") < begun
    assert main["command"][begun:] == ["fray.job.ray_pods", "host", "python", "-m", "train"]
    assert variables(main)["FRAY_POOL_HEAD"] == "rank-0:7077"


@pytest.mark.parametrize("engine", ["fray", "dask", "ray"])
def test_in_a_queue_that_fixes_their_number_the_head_lets_no_worker_go(engine: str) -> None:
    """Another one would never follow, once users ask for more again."""
    asked = {"workers": {"replicas": 4, "engine": engine}, "queue": {"name": "team"}}
    for elastic in (False, True):
        settings = replace(SETTINGS, kueue_elastic_jobs=elastic)
        pod = hosts(settings, **asked)
        told = {name for sidecar in pod.get("initContainers", []) for name in variables(sidecar)}
        assert (ENV_WORKERS_MIN in told) == elastic
        job = build_frayjob(**asked)
        made = build_worker_job(job, attempt=1, generation=1, count=4, settings=settings)
        (size,) = [fact.because for fact in made.facts if fact.subject == "parallelism, completions"]
        assert ("stays as it is" in size) != elastic


def test_a_sidecar_asks_for_workers_of_ray_by_demand_and_can_end_without_the_attempt() -> None:
    environment = {"image": "mine", "pipPackages": ["ray"]}
    pod = hosts(workers={"maxReplicas": 9, "engine": "ray"}, environment=environment)
    runtime, demand = pod["initContainers"]
    assert (runtime["name"], demand["name"]) == ("fray-runtime", POOL_DEMAND_CONTAINER)
    assert (demand["image"], demand["restartPolicy"]) == ("mine", "Always")
    assert demand["command"][-3:] == ["run", "fray.job.ray_pods", "demand"]
    assert "--package=ray" in demand["command"]
    told = variables(demand)
    assert (told[ENV_WORKERS_MAX], told[ENV_WORKERS_IDLE_SECONDS]) == ("9", "60")
    assert told["RAY_AUTH_MODE"] == "token"
    assert told[ENV_POOL_KEY] in {mount["mountPath"] for mount in demand["volumeMounts"]}
    assert ENV_WORKERS_MAX not in variables(pod["containers"][0])


def test_processes_of_ray_know_each_other_by_a_token_that_no_variable_holds() -> None:
    asked = {"workers": {"replicas": 1, "engine": "ray"}, "environment": {"image": "mine"}}
    main, worker = hosts(**asked)["containers"][0], workers(**asked)["containers"][0]
    for container in (main, worker):
        told = variables(container)
        assert told[ENV_WORKERS_ENGINE] == "ray"
        assert told["RAY_AUTH_MODE"] == "token"
        assert told["RAY_AUTH_TOKEN_PATH"].startswith("/dev/shm/")
        # What Ray starts finds Fray, also in an image that lacks it.
        assert "--offer-fray" in container["command"]
    assert worker["command"][-2:] == ["fray.job.ray_pods", "worker"]
