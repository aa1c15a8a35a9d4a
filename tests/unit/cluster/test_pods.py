"""A JobSet stands for one process per host, with what the controllers and the kubelet would tell it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from fray.cluster.local.pods import LocalMachine, LocalPod, build_local_pods
from fray.errors import InvalidJobError, UnsupportedFeatureError
from tests.unit.cluster.local_jobs import frayjob, local_plan

MACHINE = LocalMachine("laptop", uuid.UUID(int=7))


def pods(**spec: Any) -> tuple[LocalPod, ...]:
    return build_local_pods(local_plan(frayjob(**spec)), MACHINE)


def main_container(**fields: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "main", **fields}]}}}


def test_there_is_a_pod_for_each_host_of_each_slice_in_order_of_rank() -> None:
    found = pods(tpu="v5p-16", replicas=2)
    assert [(pod.slice_index, pod.host, pod.rank, pod.label) for pod in found] == [
        (0, 0, 0, "0/0"),
        (0, 1, 1, "0/1"),
        (1, 0, 2, "1/0"),
        (1, 1, 3, "1/1"),
    ]
    assert found[3].name == "job-a1-slice-1-1"
    assert found[3].command == ("train", "--fast")


def test_labels_of_the_controllers_are_resolved_for_each_host() -> None:
    env = pods(tpu="v5p-16", replicas=2)[3].env
    assert (env["FRAY_SLICE"], env["FRAY_HOST"]) == ("1", "1")
    assert (env["JOBSET_NAME"], env["REPLICATED_JOB_NAME"]) == ("job-a1", "slice")
    assert env["MEGASCALE_PORT"] == "20002"
    assert env["FRAY_COORDINATOR_ADDRESS"] == "127.0.0.1:20001"


def test_the_job_controllers_index_is_added_last_so_only_the_process_sees_it() -> None:
    env = pods(environment={"env": [{"name": "MINE", "value": "$(JOB_COMPLETION_INDEX)"}]})[0].env
    assert env["JOB_COMPLETION_INDEX"] == "0"
    assert env["MINE"] == "$(JOB_COMPLETION_INDEX)"


def test_a_users_own_completion_index_stays() -> None:
    env = pods(environment={"env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]})[0].env
    assert env["JOB_COMPLETION_INDEX"] == "mine"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "job-a1-slice-0-1"),
        ("metadata.namespace", "default"),
        ("metadata.labels['fray.dev/job']", "job"),
        ("metadata.labels['team']", "vision"),
        ("metadata.labels['nobody-set-this']", ""),
        ("metadata.annotations['note']", "hello"),
        ("metadata.labels['jobset.sigs.k8s.io/job-index']", "0"),
        ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "1"),
        ("spec.nodeName", "laptop"),
        ("spec.serviceAccountName", "fray-job"),
        ("status.podIP", "127.0.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_downward_fields_are_those_of_the_pod(path: str, value: str) -> None:
    template = {"metadata": {"labels": {"team": "vision"}, "annotations": {"note": "hello"}}}
    env = [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    assert pods(replicas=2, environment={"env": env}, podTemplate=template)[1].env["X"] == value


def test_uids_differ_between_hosts_and_runs_but_not_between_looks() -> None:
    env = [{"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    plan = local_plan(frayjob(replicas=2, environment={"env": env}))
    once, again = build_local_pods(plan, MACHINE), build_local_pods(plan, MACHINE)
    other = build_local_pods(plan, LocalMachine("laptop", uuid.UUID(int=8)))
    assert [pod.env["UID"] for pod in once] == [pod.env["UID"] for pod in again]
    assert len({pod.env["UID"] for pod in (*once, *other)}) == 4


def test_an_overlays_command_args_directory_and_grace_count() -> None:
    template = main_container(
        command=["run", "$(FRAY_HOST)"], args=["$(GREETING)", "$$(X)"], workingDir="/app"
    )
    template["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = 5
    template["environment"] = {"env": [{"name": "GREETING", "value": "hi"}]}
    pod = pods(**template)[0]
    assert pod.command == ("run", "0", "hi", "$(X)")
    assert (pod.working_dir, pod.grace_seconds) == ("/app", 5.0)


def test_a_pod_without_its_own_directory_and_grace_has_kubernetes_defaults() -> None:
    pod = pods()[0]
    assert (pod.working_dir, pod.grace_seconds) == (None, 30.0)


def test_leased_ports_replace_declared_ones_also_where_they_are_referred_to() -> None:
    job = frayjob(
        replicas=2,
        ports=[{"name": "http-api", "port": 8080}],
        environment={"env": [{"name": "URL", "value": "http://localhost:$(FRAY_PORT_HTTP_API)"}]},
    )
    found = build_local_pods(local_plan(job), MACHINE, ports=[{"http-api": 20010}, {"http-api": 20011}])
    assert [pod.env["FRAY_PORT_HTTP_API"] for pod in found] == ["20010", "20011"]
    assert [pod.env["URL"] for pod in found] == ["http://localhost:20010", "http://localhost:20011"]


@pytest.mark.parametrize(
    "source",
    [
        {"secretKeyRef": {"name": "token", "key": "value"}},
        {"configMapKeyRef": {"name": "token", "key": "value"}},
        {"resourceFieldRef": {"resource": "limits.cpu"}},
        {"fieldRef": {"fieldPath": "status.startTime"}},
    ],
)
def test_a_variable_from_what_only_a_cluster_has_is_refused_by_name(source: dict[str, Any]) -> None:
    with pytest.raises(
        UnsupportedFeatureError, match="environment variable TOKEN is not supported here"
    ) as caught:
        pods(environment={"env": [{"name": "TOKEN", "valueFrom": source}]})
    assert "plain value" in caught.value.next_step


@pytest.mark.parametrize("kind", ["secretKeyRef", "configMapKeyRef"])
def test_an_optional_reference_is_left_out(kind: str) -> None:
    source = {kind: {"name": "token", "key": "value", "optional": True}}
    assert "TOKEN" not in pods(environment={"env": [{"name": "TOKEN", "valueFrom": source}]})[0].env


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"command": "train"}, "containers[main].command"),
        ({"command": ["sleep", 5]}, "containers[main].command"),
        ({"args": {"a": 1}}, "containers[main].args"),
        ({"workingDir": 7}, "containers[main].workingDir"),
        ({"env": [{"name": "X", "value": 7}]}, "containers[main].env"),
        ({"env": [{"name": "X", "valueFrom": "secret"}]}, "containers[main].env"),
        ({"env": [{"name": "X", "valueFrom": {"fieldRef": "metadata.name"}}]}, "containers[main].env"),
        ({"envFrom": ["secret"]}, "containers[main].envFrom"),
    ],
)
def test_wrong_types_in_an_overlay_name_their_field(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidJobError) as caught:
        pods(**main_container(**fields))
    assert caught.value.problems[0].path == f"spec.podTemplate.spec.{path}"


@pytest.mark.parametrize("grace", [-1, "30", True, 1.5])
def test_a_grace_period_that_is_no_number_of_seconds_is_refused(grace: object) -> None:
    with pytest.raises(InvalidJobError, match="terminationGracePeriodSeconds"):
        pods(podTemplate={"spec": {"terminationGracePeriodSeconds": grace}})


def test_a_container_whose_command_was_removed_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="without command"):
        pods(**main_container(command=None))
