"""What `fray doctor` says of GKE, with access and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.cluster.answers import CheckResult, Mark
from fray.errors import PackageMissingError
from fray.nodepools.bodies import GkeCluster, build_body, build_policy
from fray.nodepools.examination import examine_gke
from fray.nodepools.gke import Gke
from fray.nodepools.requests import PoolChoices, name_pool
from tests.gke.compute import ComputeAdapter, open_fake_session
from tests.gke.kubeconfig import write_kubeconfig
from tests.gke.server import FakeGke
from tests.unit.nodepools.golden import build_job, build_request


class Bench:
    def __init__(self, fake: FakeGke, folder: Path) -> None:
        self.fake, self.adapter, self.config = fake, ComputeAdapter(fake), folder / "config"
        self.point_to(f"gke_{fake.project}_{fake.location}_{fake.cluster}")

    def point_to(self, entry: str) -> None:
        write_kubeconfig(self.config, entry)

    def examine(self, **more: Any) -> dict[str, CheckResult]:
        given: dict[str, Any] = {
            "open_client": self.fake.client,
            "open_session": lambda: open_fake_session(self.fake, self.adapter),
        }
        results = examine_gke({"KUBECONFIG": str(self.config)}, **{**given, **more})
        return {result.subject: result for result in results}

    def create(self, name: str) -> None:
        request = build_request({"resources": {"tpu": {"type": name}}}, PoolChoices(zones=("us-east5-a",)))
        Gke(GkeCluster.parse(self.fake.path), self.fake.client()).create(build_body(request, made_by="cli"))
        self.fake.clock.sleep(self.fake.seconds)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with FakeGke() as fake:
        yield Bench(fake, tmp_path)


def test_cluster_pools_and_quota_are_told(bench: Bench) -> None:
    bench.create("v5p-16")
    bench.create("v6e-8")
    bench.adapter.quotas = {
        "NVIDIA_L4_GPUS": (3, 8),
        "TPU_LITE_PODSLICE_V5": (0, 16),
        "CPUS": (1, 2),
        "K80_GPUS": (0, 0),
    }
    found = bench.examine()
    assert found["GKE"].seen == "c in us-east5, project p"
    assert found["node pools"].seen == "tpu-v5p-slice 2x2x2: 1 pool; tpu-v6e-slice: 1 pool"
    assert found["quota in us-east5"].seen == "NVIDIA_L4_GPUS 5 of 8 left; TPU_LITE_PODSLICE_V5 16 of 16 left"
    assert {result.mark for result in found.values()} == {Mark.OK}


def test_what_the_project_allows_is_told(bench: Bench) -> None:
    bench.adapter.family_quotas = {
        ("us-east5", "CT6E"): 64,
        ("us-east5", "TPU7X"): -1,
        ("us-west4", "CT5P"): 8,
    }
    found = bench.examine()
    assert found["APIs"].seen.startswith("on: container.googleapis.com, compute.googleapis.com")
    assert found["permissions"].next_step == ""
    told = found["quota by family in us-east5"].seen
    assert told == "CT6E 64; TPU7X without limit: chips or GPUs, used ones included"
    bench.adapter.apis -= {"container.googleapis.com"}
    bench.adapter.permissions -= {"container.clusters.update"}
    found = bench.examine()
    assert (found["APIs"].mark, found["permissions"].mark) == (Mark.WRONG, Mark.OK)
    assert "gcloud services enable container.googleapis.com --project=p" in found["APIs"].next_step
    assert found["permissions"].seen == "the project doesn't grant container.clusters.update"
    assert "roles/container.clusterAdmin" in found["permissions"].next_step


@pytest.mark.parametrize(
    ("service", "subject"),
    [
        ("serviceusage", "APIs"),
        ("cloudresourcemanager", "permissions"),
        ("cloudquotas", "quota by family"),
    ],
)
def test_each_service_may_refuse_by_itself(bench: Bench, service: str, subject: str) -> None:
    refusal = {
        "error": {"message": f"{service} API has not been used in project 1 before or it is disabled."}
    }
    for answer in ((403, refusal), (200, "no JSON"), (500, {"error": {"message": "x"}})):
        bench.adapter.others = {service: answer}
        found = bench.examine()
        assert found.pop(subject).mark is Mark.UNKNOWN
        assert {result.mark for result in found.values()} == {Mark.OK}


def test_answers_of_another_shape_allow_nothing(bench: Bench) -> None:
    strange = (
        200,
        {"services": "x", "permissions": 1, "quotaInfos": [{"dimensionsInfos": [{"dimensions": 1}]}]},
    )
    bench.adapter.others = dict.fromkeys(("serviceusage", "cloudresourcemanager", "cloudquotas"), strange)
    found = bench.examine()
    assert found["APIs"].mark is Mark.WRONG
    assert found["permissions"].seen.startswith("the project doesn't grant container.clusters.get, ")
    assert found["quota by family in us-east5"].seen == "none"


def test_the_project_is_asked_where_gke_refuses(bench: Bench) -> None:
    bench.adapter.apis = set()
    bench.point_to("gke_p_us-east5_other")
    found = bench.examine()
    assert (found["GKE"].mark, found["APIs"].mark) == (Mark.UNKNOWN, Mark.WRONG)


def test_a_broken_pool_is_wrong_and_no_pool_is_not(bench: Bench) -> None:
    assert "fray pools create" in bench.examine()["node pools"].next_step
    bench.fake.refuse("stock-out")
    bench.create("v5p-16")
    broken = bench.examine()["node pools"]
    assert broken.mark is Mark.WRONG
    assert "Google Cloud has no such machines free in the zone now (GKE: " in broken.seen
    assert f"fray pools delete {bench.fake.creates[0]}" in broken.next_step


def test_autopilot_makes_pools_itself(bench: Bench) -> None:
    bench.fake.autopilot = True
    found = bench.examine()
    assert found["GKE"].seen.endswith(", Autopilot")
    assert "GKE makes them" in found["node pools"].seen
    # Which N1 machine such a GPU is attached to nobody has to choose there.
    t4 = {"resources": {"gpu": {"type": "nvidia-tesla-t4", "count": 2}}}
    wanted = bench.examine(job=build_job(t4))["pools for train"]
    assert (wanted.mark, "Autopilot makes the nodes" in wanted.seen) == (Mark.OK, True)


@pytest.mark.parametrize(
    ("dns", "way"),
    [
        (False, "Reach it from its own network, or one that is connected with it: "),
        (True, "Reach it by its name, from anywhere: "),
    ],
)
def test_a_private_cluster_says_what_must_be_prepared(bench: Bench, dns: bool, way: str) -> None:
    assert not {"control plane", "nodes"} & set(bench.examine())
    bench.fake.private, bench.fake.dns_endpoint = True, dns
    found = bench.examine()
    assert found["control plane"].next_step.startswith(way)
    assert "get-credentials c --location=us-east5 --project=p --" in found["control plane"].next_step
    assert "port 9443" in found["nodes"].next_step
    assert {result.mark for result in found.values()} == {Mark.OK}
    bench.create("v5p-16")
    (pool,) = bench.fake.pools.values()
    assert pool.network_config.enable_private_nodes


def test_what_cannot_be_asked_is_unknown(bench: Bench) -> None:
    def missing() -> Any:
        raise PackageMissingError("asking GKE", "google-cloud-container", "gke")

    found = bench.examine(open_client=missing)
    assert (found["GKE"].mark, found["GKE"].next_step) == (
        Mark.UNKNOWN,
        "Install it: `pip install 'fray[gke]'`.",
    )
    bench.adapter.scripted = [(403, {"error": {"message": "Required 'compute.regions.get' permission"}})]
    found = bench.examine()
    assert (found["GKE"].mark, found["quota"].mark) == (Mark.OK, Mark.UNKNOWN)
    bench.point_to("gke_p_us-east5_other")
    assert bench.examine()["GKE"].mark is Mark.UNKNOWN


def test_other_clusters_get_no_line(bench: Bench) -> None:
    bench.point_to("kind-kind")
    assert bench.examine() == {}
    bench.config.unlink()
    assert bench.examine() == {}


SLICES = {"resources": {"tpu": {"type": "v5p-16"}}, "replicas": 2}


@pytest.mark.parametrize(
    ("spec", "pools", "mark", "told"),
    [
        (SLICES, 0, Mark.WRONG, "2 nodes with tpu-v5p-slice 2x2x2; missing: 2 pools of ct5p-hightpu-4t"),
        (SLICES, 1, Mark.WRONG, "missing: 1 pool of ct5p-hightpu-4t"),
        (SLICES, 2, Mark.OK, " can hold it"),
        (
            {**SLICES, "placement": {"zones": ["us-west4-a"]}},
            2,
            Mark.WRONG,
            "the job may run in us-west4-a only",
        ),
        ({**SLICES, "placement": {"nodePool": "mine"}}, 0, Mark.OK, "placement.nodePool names mine"),
        ({}, 0, Mark.OK, "no accelerator"),
    ],
)
def test_the_pools_of_a_job_are_looked_for(
    bench: Bench, spec: dict[str, Any], pools: int, mark: Mark, told: str
) -> None:
    gke = Gke(GkeCluster.parse(bench.fake.path), bench.fake.client())
    for number in range(pools):
        request = build_request(
            {"resources": {"tpu": {"type": "v5p-16"}}}, PoolChoices(zones=bench.fake.zones)
        )
        gke.create(build_body(name_pool(request, number), made_by="cli"))
    bench.fake.clock.sleep(bench.fake.seconds)
    found = bench.examine(job=build_job(spec))["pools for train"]
    assert (found.mark, told in found.seen) == (mark, True), found
    assert (bool(found.next_step)) is (mark is Mark.WRONG)


def test_cubes_of_dynamic_slices_are_counted(bench: Bench) -> None:
    spec = {"resources": {"tpu": {"type": "tpu7x-4x4x8"}}}
    request = build_request(spec, PoolChoices(zones=bench.fake.zones, dynamic_slices=True))
    assert request.policy is not None
    bench.fake.policies[request.policy.name] = build_policy(request.policy)["workloadPolicy"]
    gke = Gke(GkeCluster.parse(bench.fake.path), bench.fake.client())
    for number in range(2):
        gke.create(build_body(name_pool(request, number), made_by="cli"))
        bench.fake.clock.sleep(bench.fake.seconds)
        found = bench.examine(job=build_job(spec))["pools for train"]
        assert ("missing: 1 pool" in found.seen, " can hold it" in found.seen) == (number == 0, number == 1)


def test_gpus_of_any_n1_machine_will_do(bench: Bench) -> None:
    t4 = {"resources": {"gpu": {"type": "nvidia-tesla-t4", "count": 2}}}
    assert bench.examine(job=build_job(t4))["pools for train"].mark is Mark.WRONG
    choices = PoolChoices(zones=bench.fake.zones, machine_type="n1-standard-16")
    body = build_body(build_request(t4, choices), made_by="cli")
    Gke(GkeCluster.parse(bench.fake.path), bench.fake.client()).create(body)
    bench.fake.clock.sleep(bench.fake.seconds)
    assert bench.examine(job=build_job(t4))["pools for train"].mark is Mark.OK


def test_a_job_waits_for_whoever_makes_its_pools(bench: Bench) -> None:
    bench.fake.limits = {"tpu-v5p-slice": 8}
    found = bench.examine(job=build_job(SLICES))["pools for train"]
    assert (found.mark, "its limit for tpu-v5p-slice is 8" in found.seen) == (Mark.WRONG, True)
    assert "--max-accelerator=type=tpu-v5p-slice,count=16" in found.next_step
    bench.fake.limits = {"tpu-v5p-slice": 16}
    found = bench.examine(job=build_job(SLICES))["pools for train"]
    assert (found.mark, "node auto-provisioning" in found.seen) == (Mark.OK, True)


def test_what_a_job_needs_is_told_where_nothing_can_be_asked(bench: Bench) -> None:
    def missing() -> Any:
        raise PackageMissingError("asking GKE", "google-cloud-container", "gke")

    found = bench.examine(open_client=missing, job=build_job(SLICES))["pools for train"]
    assert (found.mark, "the job needs 2 node pools of 2 nodes" in found.seen) == (Mark.UNKNOWN, True)
    bench.point_to("kind-kind")
    found = bench.examine(job=build_job(SLICES))["pools for train"]
    assert (found.mark, "the job needs 2 node pools of 2 nodes" in found.seen) == (Mark.UNKNOWN, True)


def test_answers_of_another_shape_are_no_quota(bench: Bench) -> None:
    for body in ({"quotas": None}, {"quotas": ["x", {"metric": "T4_GPUS", "limit": "many"}]}, {}):
        bench.adapter.scripted = [(200, body)]
        assert "none for GPUs" in bench.examine()["quota in us-east5"].seen
