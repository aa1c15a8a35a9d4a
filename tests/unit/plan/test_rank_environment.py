"""What each process of a gang sees in its environment, rank by rank, spelled out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.plan.expansion import expand_arguments, expand_environment
from fray.plan.jobset import AttemptPlan, build_attempt
from fray.plan.names import Ports, build_loopback_addresses
from fray.plan.settings import PlanSettings
from fray.runtime.identity import Identity
from fray.testing import build_frayjob
from fray.wire.frayjob import FrayJob
from tests.unit.plan.frayjobs import any_job
from tests.unit.plan.golden import build_golden, read_job
from tests.unit.plan.jobset_rules import main_container, pod_template


def environment_of(plan: AttemptPlan, *, slice_index: int, host: int) -> dict[str, str]:
    """Return what the kubelet gives to one process: fields as JobSet, the Job controller and GKE set them."""
    fields = {
        **pod_template(plan.jobset)["metadata"]["labels"],
        "metadata.name": "pod-1",
        "metadata.uid": "uid-1",
        "spec.nodeName": "node-1",
        "jobset.sigs.k8s.io/jobset-name": plan.name,
        "jobset.sigs.k8s.io/replicatedjob-name": "slice",
        "jobset.sigs.k8s.io/job-index": str(slice_index),
        "batch.kubernetes.io/job-completion-index": str(host),
    }
    entries = [entry for entry in main_container(plan.jobset)["env"] if not _needs_cluster(entry)]
    return expand_environment(entries, fields)


def _needs_cluster(entry: dict[str, object]) -> bool:
    source = entry.get("valueFrom")
    return isinstance(source, dict) and "secretKeyRef" in source


def test_a_host_of_a_multislice() -> None:
    plan = build_golden("tpu-multislice")
    assert environment_of(plan, slice_index=1, host=0) == {
        "FRAY_JOB_NAME": "train",
        "FRAY_ROOT_JOB": "train",
        "FRAY_ATTEMPT": "1",
        "FRAY_SLICE": "1",
        "FRAY_NUM_SLICES": "2",
        "FRAY_HOST": "0",
        "FRAY_HOSTS_PER_SLICE": "2",
        "FRAY_WORLD_SIZE": "4",
        "FRAY_REPLICA_COUNT": "4",
        "FRAY_COORDINATOR_ADDRESS": "train-a1-slice-0-0.train-a1:8482",
        "JOBSET_NAME": "train-a1",
        "REPLICATED_JOB_NAME": "slice",
        "JOB_INDEX": "1",
        "TPU_WORKER_ID": "0",
        "TPU_WORKER_HOSTNAMES": "train-a1-slice-1-0.train-a1,train-a1-slice-1-1.train-a1",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
        "MEGASCALE_COORDINATOR_ADDRESS": "train-a1-slice-0-0.train-a1",
        "MEGASCALE_PORT": "8080",
        "JAX_PLATFORMS": "",
        "LIBTPU_INIT_ARGS": "--xla_tpu_scoped_vmem_limit_kib=50000",
    }


def test_hosts_of_one_slice_list_the_same_peers_and_no_megascale() -> None:
    plan = build_golden("tpu-single-slice")
    hosts = [environment_of(plan, slice_index=0, host=host) for host in range(4)]
    assert [host["TPU_WORKER_ID"] for host in hosts] == ["0", "1", "2", "3"]
    assert {host["TPU_WORKER_HOSTNAMES"] for host in hosts} == {
        "train-a1-slice-0-0.train-a1,train-a1-slice-0-1.train-a1,"
        "train-a1-slice-0-2.train-a1,train-a1-slice-0-3.train-a1"
    }
    assert not any(name.startswith("MEGASCALE") for name in hosts[0]), "GKE and JAX know by themselves"
    assert not any(name in hosts[0] for name in ("RANK", "MASTER_ADDR", "JAX_COORDINATOR_ADDRESS"))


def test_a_single_host_slice_is_left_to_gkes_device_plugin() -> None:
    host = environment_of(build_golden("tpu-single-host"), slice_index=0, host=0)
    assert not any(name.startswith(("TPU_", "MEGASCALE")) for name in host)
    assert host["LIBTPU_INIT_ARGS"] == "--xla_tpu_scoped_vmem_limit_kib=98304"


def slices(shape: str, multislice: str | None) -> AttemptPlan:
    """Return the plan of a golden job of TPU slices that says whether they work together."""
    job = read_job(shape).to_manifest()
    if multislice is not None:
        job["spec"]["resources"]["tpu"]["multislice"] = multislice
    return build_attempt(FrayJob.from_manifest(job), attempt=1, settings=PlanSettings())


@pytest.mark.parametrize(
    ("shape", "multislice", "joined", "because"),
    [
        ("tpu-multislice", None, True, "several hosts each"),
        ("tpu-multislice", "Enabled", True, "resources.tpu.multislice says so"),
        ("tpu-multislice", "Disabled", False, "resources.tpu.multislice says so"),
        ("tpu-single-host-slices", None, False, "GKE documents multislice for slices of several hosts"),
        ("tpu-single-host-slices", "Enabled", True, "resources.tpu.multislice says so"),
        ("tpu-single-host-slices", "Disabled", False, "resources.tpu.multislice says so"),
    ],
)
def test_slices_work_together_where_gke_documents_it_or_the_job_says_so(
    shape: str, multislice: str | None, joined: bool, because: str
) -> None:
    plan = slices(shape, multislice)
    host = environment_of(plan, slice_index=1, host=0)
    assert any(name.startswith("MEGASCALE") for name in host) == joined
    (fact,) = (fact for fact in plan.facts if fact.subject == "multislice")
    assert fact.value == ("Enabled" if joined else "Disabled")
    assert because in fact.because


def test_one_slice_has_nothing_to_say_about_multislice() -> None:
    for asked in (None, "Enabled"):
        plan = slices("tpu-single-slice", asked)
        assert "multislice" not in {fact.subject for fact in plan.facts}
        assert not any(name.startswith("MEGASCALE") for name in environment_of(plan, slice_index=0, host=0))


def test_where_no_label_has_the_rank_the_formula_is_told() -> None:
    told = {fact.subject: fact.value for fact in build_golden("tpu-multislice").facts}
    assert told["rank"] == "FRAY_SLICE x FRAY_HOSTS_PER_SLICE + FRAY_HOST"
    assert "rank" not in {fact.subject for fact in build_golden("tpu-single-host-slices").facts}


def test_single_host_slices_that_are_joined_know_each_other_through_megascale_alone() -> None:
    plan = slices("tpu-single-host-slices", "Enabled")
    host = environment_of(plan, slice_index=3, host=0)
    assert {name: value for name, value in host.items() if name.startswith(("TPU_", "MEGASCALE"))} == {
        "MEGASCALE_NUM_SLICES": "4",
        "MEGASCALE_SLICE_ID": "3",
        "MEGASCALE_COORDINATOR_ADDRESS": "train-a1-slice-0-0.train-a1",
        "MEGASCALE_PORT": "8080",
    }


def test_ironwood_hosts_see_addresses_with_ports_too() -> None:
    host = environment_of(build_golden("tpu7x-multislice"), slice_index=1, host=1)
    assert {name: value for name, value in host.items() if name.startswith("TPU_")} == {
        "TPU_WORKER_ID": "1",
        "TPU_WORKER_HOSTNAMES": "train-a1-slice-1-0.train-a1,train-a1-slice-1-1.train-a1",
        "TPU_PROCESS_PORT": "8471",
        "TPU_PROCESS_ADDRESSES": "train-a1-slice-1-0.train-a1:8471,train-a1-slice-1-1.train-a1:8471",
    }
    assert "LIBTPU_INIT_ARGS" not in host


def test_a_host_of_a_gpu_gang() -> None:
    assert environment_of(build_golden("gpu-gang"), slice_index=0, host=3) == {
        "FRAY_JOB_NAME": "train",
        "FRAY_ROOT_JOB": "train",
        "FRAY_ATTEMPT": "1",
        "FRAY_SLICE": "0",
        "FRAY_NUM_SLICES": "1",
        "FRAY_HOST": "3",
        "FRAY_HOSTS_PER_SLICE": "4",
        "FRAY_RANK": "3",
        "FRAY_WORLD_SIZE": "4",
        "FRAY_REPLICA_ID": "3",
        "FRAY_REPLICA_COUNT": "4",
        "FRAY_COORDINATOR_ADDRESS": "train-a1-slice-0-0.train-a1:8482",
        "JOBSET_NAME": "train-a1",
        "REPLICATED_JOB_NAME": "slice",
        "JOB_INDEX": "0",
        "JAX_COORDINATOR_ADDRESS": "train-a1-slice-0-0.train-a1:8482",
        "JAX_COORDINATOR_PORT": "8482",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3",
        "MASTER_ADDR": "train-a1-slice-0-0.train-a1",
        "MASTER_PORT": "29500",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "NODE_RANK": "3",
        "NNODES": "4",
        "GPUS_PER_NODE": "8",
        "PET_NNODES": "4",
        "PET_NODE_RANK": "3",
        "PET_NPROC_PER_NODE": "8",
        "PET_MASTER_ADDR": "train-a1-slice-0-0.train-a1",
        "PET_MASTER_PORT": "29500",
        "NCCL_DEBUG": "WARN",
        "NCCL_SOCKET_IFNAME": "eth0",
    }


def test_a_copy_of_a_cpu_gang_has_no_gpu_variables() -> None:
    host = environment_of(build_golden("cpu-gang"), slice_index=0, host=2)
    assert (host["RANK"], host["WORLD_SIZE"], host["JAX_PROCESS_ID"], host["FRAY_HOST"]) == (
        "2",
        "3",
        "2",
        "2",
    )
    assert not any(name.startswith(("NCCL", "GPUS", "PET_", "TPU_", "MEGASCALE", "LIBTPU")) for name in host)


def test_a_users_variables_see_frays_and_win_over_them() -> None:
    host = environment_of(build_golden("environment-variables"), slice_index=0, host=1)
    names = ("DATA", "SHARD", "PRICE", "JAX_PLATFORMS", "LIBTPU_INIT_ARGS", "NODE")
    assert {name: host[name] for name in names} == {
        "DATA": "/data/train",
        "SHARD": "/data/train/0-1",
        "PRICE": "$(DATA) and $(UNKNOWN)",
        "JAX_PLATFORMS": "tpu,cpu",
        "LIBTPU_INIT_ARGS": "",
        "NODE": "node-1",
    }


def test_identity_cannot_be_overridden_but_other_names_with_its_prefix_can() -> None:
    host = environment_of(build_golden("protected-variables"), slice_index=0, host=0)
    assert (host["FRAY_HOST"], host["FRAY_ATTEMPT"]) == ("0", "1")
    assert (host["FRAY_EXTRA"], host["FRAY_MORE"]) == ("mine", "1")


def test_named_ports_and_the_root_of_the_tree() -> None:
    host = environment_of(build_golden("ports"), slice_index=0, host=0)
    assert (host["FRAY_PORT_METRICS"], host["FRAY_PORT_HTTP_API"]) == ("9000", "8080")
    child = environment_of(build_golden("child-job"), slice_index=0, host=0)
    assert (child["FRAY_JOB_NAME"], child["FRAY_ROOT_JOB"]) == ("sweep-7-trial-3", "sweep")


def test_each_attempt_meets_at_its_own_address() -> None:
    job = read_job("gpu-gang")
    third = build_attempt(job, attempt=3, settings=PlanSettings())
    host = environment_of(third, slice_index=0, host=1)
    assert host["FRAY_ATTEMPT"] == "3"
    assert host["MASTER_ADDR"] == "train-a3-slice-0-0.train-a3"


def test_processes_on_a_laptop_meet_on_loopback_at_leased_ports() -> None:
    ports = Ports(coordinator=20001, megascale=20002, tpu_process=20003, torch=20004)
    plan = build_attempt(
        read_job("gpu-gang"),
        attempt=1,
        settings=PlanSettings(metadata_server=False),
        addresses=build_loopback_addresses(ports),
    )
    host = environment_of(plan, slice_index=0, host=1)
    assert host["FRAY_COORDINATOR_ADDRESS"] == host["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:20001"
    assert host["JAX_COORDINATOR_PORT"] == "20001"
    assert (host["MASTER_ADDR"], host["MASTER_PORT"]) == ("127.0.0.1", "20004")
    assert host["NCCL_SOCKET_IFNAME"] == "lo", "NCCL finds no eth0 on most workstations"


def test_a_tpu_job_on_a_laptop_says_that_there_is_one_slice() -> None:
    def build(shape: str) -> dict[str, str]:
        plan = build_attempt(
            read_job(shape),
            attempt=1,
            settings=PlanSettings(metadata_server=False),
            addresses=build_loopback_addresses(Ports(megascale=20002)),
        )
        return environment_of(plan, slice_index=plan.gang.slices - 1, host=0)

    # JAX would ask Google's metadata server for minutes if they were unset.
    one = build("tpu-single-slice")
    assert {name: value for name, value in one.items() if name.startswith("MEGASCALE")} == {
        "MEGASCALE_NUM_SLICES": "",
        "MEGASCALE_SLICE_ID": "",
        "MEGASCALE_COORDINATOR_ADDRESS": "",
    }
    two = build("tpu-multislice")
    assert {name: value for name, value in two.items() if name.startswith("MEGASCALE")} == {
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
        "MEGASCALE_COORDINATOR_ADDRESS": "127.0.0.1",
        "MEGASCALE_PORT": "20002",
    }


# --- commands ------------------------------------------------------------------------------------------


def test_setup_reaches_the_shell_as_it_was_written_and_the_entrypoint_its_arguments() -> None:
    plan = build_golden("setup-commands")
    env = environment_of(plan, slice_index=0, host=0)
    assert expand_arguments(main_container(plan.jobset)["command"], env) == [
        "/bin/sh",
        "-c",
        "set -e\n"
        "pip install --quiet 'my-package>=1'\n"
        'echo "pid $$ on $(hostname) of ${FRAY_NUM_SLICES}"\n'
        'exec "$@"',
        "setup",
        "python",
        "-m",
        "train",
        "--shard",
        "0",
    ]


@settings(max_examples=200, derandomize=True)
@given(setup=st.lists(st.text("$()ab \\\n'\"#{}", min_size=1, max_size=8), min_size=1, max_size=3))
def test_the_kubelet_changes_no_setup_command(setup: list[str]) -> None:
    plan = build_attempt(build_frayjob(environment={"setup": setup}), attempt=1, settings=PlanSettings())
    variables = {"a": "A", "b": "B", "": "nameless", "(": "x"}
    script = expand_arguments(main_container(plan.jobset)["command"], variables)[2]
    assert script == "\n".join(["set -e", *setup, 'exec "$@"'])


# --- the reader of all this ----------------------------------------------------------------------------


@settings(max_examples=100, derandomize=True)
@given(job=any_job())
def test_every_process_finds_its_identity(job: FrayJob) -> None:
    plan = build_attempt(job, attempt=7, settings=PlanSettings())
    gang = plan.gang
    places = {
        (0, 0),
        (gang.slices - 1, gang.hosts_per_slice - 1),
        (gang.slices // 2, gang.hosts_per_slice // 2),
    }
    for slice_index, host in places:
        env = environment_of(plan, slice_index=slice_index, host=host)
        identity = Identity.from_env(env)
        assert identity.rank == gang.rank(slice_index=slice_index, host=host)
        assert (identity.world_size, identity.attempt, identity.job) == (gang.hosts, 7, job.metadata.name)
        assert env["FRAY_WORLD_SIZE"] == env["FRAY_REPLICA_COUNT"] == str(gang.hosts)
        if gang.slices == 1 or gang.hosts_per_slice == 1:
            assert env["FRAY_RANK"] == env["FRAY_REPLICA_ID"] == str(identity.rank)
        else:
            assert "FRAY_RANK" not in env
        if "RANK" in env and not any(v.name == "RANK" for v in job.spec.environment.env):
            assert job.spec.pod_template is not None or env["RANK"] == str(identity.rank)


@pytest.mark.parametrize(
    ("port", "variable"), [("metrics", "FRAY_PORT_METRICS"), ("a-b-1", "FRAY_PORT_A_B_1")]
)
def test_names_of_port_variables(port: str, variable: str) -> None:
    plan = build_attempt(build_frayjob(ports=[{"name": port, "port": 1}]), attempt=1, settings=PlanSettings())
    assert environment_of(plan, slice_index=0, host=0)[variable] == "1"
