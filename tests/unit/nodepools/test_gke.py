"""GKE asked through the real client library, and operations followed, over gRPC to the fake."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.errors import GkeClusterError, GkeCredentialsError, NodePoolError, PackageMissingError
from fray.nodepools import gke as shell
from fray.nodepools.bodies import GkeCluster, build_body
from fray.nodepools.following import Following, PoolFate, create_pools, delete_pools
from fray.nodepools.gke import Gke, find_cluster, open_client
from fray.nodepools.requests import PoolChoices, name_pool
from tests.gke.kubeconfig import write_kubeconfig
from tests.gke.server import FakeGke
from tests.unit.nodepools.golden import build_request

ZONE = "us-east5-a"
REQUEST = build_request({"resources": {"tpu": {"type": "v5p-16"}}}, PoolChoices(zones=(ZONE,)))
BODIES = [build_body(name_pool(REQUEST, number), made_by="cli") for number in range(2)]
NAMES = [body["name"] for body in BODIES]


@pytest.fixture
def fake() -> Iterator[FakeGke]:
    with FakeGke() as server:
        yield server


@pytest.fixture
def gke(fake: FakeGke) -> Gke:
    return Gke(GkeCluster.parse(fake.path), fake.client())


def follow(fake: FakeGke, **more: Any) -> Following:
    return Following(fake.clock.sleep, fake.clock, **more)


def test_several_pools_are_created_at_once_and_read_back(fake: FakeGke, gke: Gke) -> None:
    fates = create_pools(gke, BODIES, follow(fake))
    assert [(fate.pool, fate.state, fate.error) for fate in fates] == [
        (name, "created", None) for name in NAMES
    ]
    assert fake.clock.now == fake.seconds
    pool = gke.list_pools()[0]
    assert (pool.name, pool.machine_type, pool.topology) == (NAMES[0], "ct5p-hightpu-4t", "2x2x2")
    assert (pool.accelerator, pool.chips, pool.nodes, pool.most_nodes) == ("tpu-v5p-slice", 4, 2, 2)
    assert (pool.made_by, pool.zones, pool.status) == ("cli", (ZONE,), "RUNNING")


def test_pools_wait_for_an_operation_of_the_cluster_and_say_so(fake: FakeGke, gke: Gke) -> None:
    fake.begin_upgrade(seconds=100)
    told: list[str] = []

    def report(fates: Any) -> None:
        told.append(fates[0].state)

    fates = create_pools(gke, BODIES[:1], follow(fake, report=report))
    assert fates[0].error is None
    assert told[0] == "waits: OperationInProgress"
    assert fake.creates == NAMES[:1]


def test_what_was_begun_before_an_interrupt_is_followed_and_never_begun_again(
    fake: FakeGke, gke: Gke
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_pools(gke, BODIES, Following(interrupt, fake.clock))
    again = create_pools(gke, BODIES, follow(fake))
    assert [fate.error for fate in again] == [None, None]
    assert fake.creates == NAMES
    with pytest.raises(KeyboardInterrupt):
        delete_pools(gke, NAMES, Following(interrupt, fake.clock))
    delete_pools(gke, NAMES, follow(fake))
    assert fake.deletes == NAMES
    assert gke.list_pools() == []


def test_pools_that_are_on_their_way_are_followed(fake: FakeGke, gke: Gke) -> None:
    gke.create(BODIES[0])
    fates = create_pools(gke, BODIES[1:], follow(fake), coming=[NAMES[0], "quiet"])
    assert [fate.pool for fate in fates] == [NAMES[0], "quiet", NAMES[1]]
    assert {fate.state for fate in fates} == {"created"}
    assert fake.clock.now == fake.seconds


def test_a_pool_that_failed_before_it_was_followed_has_failed(fake: FakeGke, gke: Gke) -> None:
    fake.refuse("stock-out")
    gke.create(BODIES[0])
    fake.clock.sleep(fake.seconds)
    (fate,) = create_pools(gke, [], follow(fake), coming=NAMES[:1])
    assert fate.error is not None
    assert (fate.state, fate.error.reason) == ("failed", "StockOut")
    delete_pools(gke, NAMES[:1], follow(fake))
    gke.create(BODIES[0])
    fake.clock.sleep(fake.seconds)
    (again,) = create_pools(gke, [], follow(fake), coming=NAMES[:1])
    assert (again.state, again.error) == ("created", None)


@pytest.mark.parametrize(
    ("name", "reason"), [("stock-out with other zones", "StockOut"), ("regional quota", "QuotaExceeded")]
)
def test_a_pool_that_fails_leaves_the_others_alone(fake: FakeGke, gke: Gke, name: str, reason: str) -> None:
    fake.refuse(name)
    first, second = create_pools(gke, BODIES, follow(fake))
    assert first.error is not None
    assert (first.error.reason, second.error) == (reason, None)
    assert first.error.subject == f"node pool {NAMES[0]}"


def test_an_operation_without_end_is_given_up(fake: FakeGke, gke: Gke) -> None:
    fake.seconds = 1e9
    (fate,) = create_pools(gke, BODIES[:1], follow(fake))
    assert fate.error is not None
    assert "30 minutes" in fate.error.message


def test_an_unknown_cluster_and_a_taken_name_are_told(fake: FakeGke, gke: Gke) -> None:
    with pytest.raises(NodePoolError, match="doesn't know it"):
        Gke(GkeCluster("p", "us-east5", "other"), fake.client()).list_pools()
    create_pools(gke, BODIES[:1], follow(fake))
    with pytest.raises(NodePoolError, match="a pool of this name already"):
        gke.create(BODIES[0])
    assert gke.delete("gone") is None


def test_operations_of_other_clusters_are_not_ours(fake: FakeGke, gke: Gke) -> None:
    gke.create(BODIES[0])
    other = Gke(GkeCluster("p", "us-east5", "c2"), fake.client())
    assert [each.pool for each in gke.list_operations()] == NAMES[:1]
    assert other.list_operations() == []


def test_a_fate_is_never_done_before_its_operation(fake: FakeGke, gke: Gke) -> None:
    seen: list[bool] = []

    def report(fates: list[PoolFate]) -> None:
        seen.append(fates[0].is_done)

    create_pools(gke, BODIES[:1], follow(fake, report=report))
    assert seen == [False] * 12 + [True]


# --- which cluster, and as whom


def test_the_cluster_is_found_by_its_entry_whatever_the_context_is_called(tmp_path: Path) -> None:
    environ = write_kubeconfig(tmp_path / "config", "gke_my-project_us-east5_fray", name="renamed")
    assert find_cluster(environ) == GkeCluster("my-project", "us-east5", "fray")
    assert (
        find_cluster(environ, context="renamed").path
        == "projects/my-project/locations/us-east5/clusters/fray"
    )
    assert find_cluster(environ).region == "us-east5"


@pytest.mark.parametrize("entry", ["kind-kind", "gke_a_b", "gke___", "gke"])
def test_a_cluster_that_is_not_gkes_is_told(tmp_path: Path, entry: str) -> None:
    with pytest.raises(GkeClusterError, match="isn't named as gcloud"):
        find_cluster(write_kubeconfig(tmp_path / "config", entry))


@pytest.mark.parametrize(
    "text",
    ["", "[", "- a", "contexts: {}", "contexts: 5", "contexts: [1, {name: x, context: 2}]", "a: b", "\x00"],
)
def test_a_kubeconfig_of_another_shape_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(GkeClusterError):
        find_cluster({"KUBECONFIG": str(tmp_path / "config")}, context="x")


@pytest.mark.parametrize("path", ["", "c", "projects/p/locations/l/clusters/", "projects/p/zones/l/nodes/c"])
def test_a_path_that_names_no_cluster_is_told(path: str) -> None:
    with pytest.raises(GkeClusterError, match="no path of a cluster"):
        GkeCluster.parse(path)


def test_nothing_imports_googles_library_before_it_is_used() -> None:
    code = "import sys, fray.nodepools.gke, fray.nodepools.following; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"google.cloud.container_v1", "grpc"}.isdisjoint(done.stdout.split())


def test_a_missing_extra_and_missing_credentials_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(GkeCredentialsError, match="application-default login"):
        open_client()
    monkeypatch.setitem(sys.modules, "google.cloud.container_v1", None)
    with pytest.raises(PackageMissingError, match=r"fray\[gke\]"):
        shell.open_client()
