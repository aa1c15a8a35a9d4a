"""`fray pools`, with the real client library against the fake GKE."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fray.cli.app import app
from fray.cli.pool_commands import (
    PoolShell,
    create_missing,
    delete_unused,
    list_pools,
    plan_pools,
    print_requests,
)
from fray.cli.pool_options import PoolOptions
from fray.errors import (
    AccessDeniedError,
    ClusterUnreachableError,
    GkeClusterError,
    GkeCredentialsError,
    InvalidRequestError,
    NodePoolError,
    PoolInUseError,
)
from fray.nodepools.answers import derive_error
from fray.nodepools.bodies import Form
from fray.nodepools.usage import ClusterObjects
from tests.gke.compute import open_fake_session
from tests.gke.kubeconfig import write_kubeconfig
from tests.gke.server import FakeGke

JOB = {
    "apiVersion": "fray.dev/v1alpha1",
    "kind": "FrayJob",
    "metadata": {"name": "train"},
    "spec": {"entrypoint": {"command": ["true"]}, "replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}},
}


class Text:
    """A stream that is no terminal, and what was written to it."""

    is_terminal = has_color = False
    width = None

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


class Terminal(Text):
    """A stream that is a terminal of 100 columns."""

    is_terminal = True
    encoding = "utf-8"
    width = 100

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        pass


class Bench:
    """A fake GKE, a kubeconfig that leads to it, a job file, and a shell around them."""

    def __init__(self, fake: FakeGke, folder: Path) -> None:
        self.fake, self.folder = fake, folder
        self.pods: list[dict[str, Any]] = []
        entry = f"gke_{fake.project}_{fake.location}_{fake.cluster}"
        write_kubeconfig(folder / "config", entry)
        self.write_job(JOB)
        self.output, self.notes = Text(), Text()

    def write_job(self, job: dict[str, Any]) -> None:
        (self.folder / "job.yaml").write_text(yaml.safe_dump(job))

    def shell(self, answer: bytes = b"", **more: Any) -> PoolShell:
        self.output, self.notes = Text(), Text()
        given: dict[str, Any] = {
            "open_client": self.fake.client,
            "open_session": lambda: open_fake_session(self.fake),
            "read_objects": self.read_objects,
            "sleep": self.fake.clock.sleep,
            "clock": self.fake.clock,
        }
        environ = {"KUBECONFIG": str(self.folder / "config")}
        return PoolShell(environ, io.BytesIO(answer), self.output, self.notes, **{**given, **more})

    def read_objects(self, *_: object) -> ClusterObjects:
        nodes = [
            {"metadata": {"name": f"{pool}-0", "labels": {"cloud.google.com/gke-nodepool": pool}}}
            for pool in self.fake.pools
        ]
        return ClusterObjects(nodes, self.pods, [], "https://192.0.2.7")

    def use(self, pool: str, job: str) -> None:
        metadata = {"name": "p", "namespace": "ml", "labels": {"fray.dev/job": job}}
        self.pods.append(
            {"metadata": metadata, "spec": {"nodeName": f"{pool}-0"}, "status": {"phase": "Running"}}
        )

    def options(self, **choices: Any) -> PoolOptions:
        return PoolOptions(str(self.folder / "job.yaml"), **choices)

    def create(self, **choices: Any) -> int:
        return create_missing(self.options(**choices), self.shell())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with FakeGke() as fake:
        yield Bench(fake, tmp_path)


def test_plan_shows_what_is_missing_then_what_exists(bench: Bench) -> None:
    plan_pools(bench.options(), None, bench.shell())
    assert "train: 2 slices of v5p-16 (2 hosts x 4 chips each)" in bench.output.text
    assert bench.output.text.count("missing") == 2
    bench.create()
    plan_pools(bench.options(), None, bench.shell())
    assert bench.output.text.count("exists") == 2
    assert "missing" not in bench.output.text
    assert bench.output.text.endswith("All that the job needs is there.\n")


def test_plan_has_a_column_of_the_users_own_prices(bench: Bench) -> None:
    prices = bench.folder / "prices.yaml"
    prices.write_text("ct5p-hightpu-4t: 16.8\nct5p-hightpu-4t/spot: 6\n")
    plan_pools(bench.options(), str(prices), bench.shell())
    assert bench.output.text.count("33.60") == 2
    plan_pools(bench.options(spot=True), str(prices), bench.shell())
    assert bench.output.text.count("12.00") == 2
    prices.write_text("ct6e: 1")
    plan_pools(bench.options(), str(prices), bench.shell())
    assert bench.output.text.count("?") == 2
    prices.write_text("- 1")
    with pytest.raises(InvalidRequestError, match="holds no prices"):
        plan_pools(bench.options(), str(prices), bench.shell())


def test_pools_that_others_use_are_not_counted_as_there(bench: Bench) -> None:
    bench.create()
    first, second = bench.fake.creates
    bench.use(first, "other")
    bench.use(second, "train")
    plan_pools(bench.options(), None, bench.shell())
    assert f"{second}" in bench.output.text
    assert bench.output.text.count("missing") == 1
    assert first not in bench.output.text


def test_a_job_of_this_name_in_another_namespace_is_another_one(bench: Bench) -> None:
    bench.create()
    bench.use(bench.fake.creates[0], "train")
    for namespace, missing in (("ml", 0), ("lab", 1)):
        bench.write_job({**JOB, "metadata": {"name": "train", "namespace": namespace}})
        plan_pools(bench.options(), None, bench.shell())
        assert bench.output.text.count("missing") == missing


def test_create_makes_the_pools_that_are_missing_and_says_how_that_goes(bench: Bench) -> None:
    assert bench.create() == 0
    assert len(bench.fake.creates) == 2
    assert bench.notes.text.splitlines() == [
        *(f"{name}: being created" for name in bench.fake.creates),
        *(f"{name}: created" for name in bench.fake.creates),
    ]
    assert bench.create() == 0
    assert len(bench.fake.creates) == 2
    assert "All that the job needs is there." in bench.notes.text


def test_create_after_ctrl_c_follows_what_goes_on(bench: Bench) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_missing(bench.options(), bench.shell(sleep=interrupt))
    assert "the same command follows it" in bench.notes.text
    assert bench.create() == 0
    assert len(bench.fake.creates) == 2
    assert {pool.status.name for pool in bench.fake.pools.values()} == {"RUNNING"}


def test_create_tells_of_a_pool_that_failed_while_another_was_made(bench: Bench) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    bench.write_job({**JOB, "spec": {**JOB["spec"], "replicas": 1}})
    bench.fake.refuse("stock-out")
    with pytest.raises(KeyboardInterrupt):
        create_missing(bench.options(), bench.shell(sleep=interrupt))
    bench.write_job(JOB)
    bench.fake.seconds = 600.0
    assert bench.create() == 1
    first, second = bench.fake.creates
    assert f"{first}: failed" in bench.notes.text
    assert f"{second}: created" in bench.notes.text
    assert "Google Cloud has no such machines free in the zone now" in bench.notes.text


def test_a_stock_out_is_one_sentence_with_the_zones_that_have_room(bench: Bench) -> None:
    bench.fake.refuse("stock-out with other zones")
    assert bench.create() == 1
    failed = bench.fake.creates[0]
    assert (
        f"error: node pool {failed}: Google Cloud has no such machines free in the zone now"
        in bench.notes.text
    )
    assert "Try us-east5-b or us-east5-c, which GKE says has some" in bench.notes.text
    assert f"fray pools delete {failed}" in bench.notes.text
    plan_pools(bench.options(), None, bench.shell())
    assert f"{failed} is broken" in bench.notes.text
    assert bench.output.text.count("missing") == 1
    assert delete_unused([failed], None, None, bench.shell(), idle=False, yes=True) == 0
    assert bench.fake.deletes == [failed]


def test_quota_is_told_for_the_pool_it_lacks_for(bench: Bench) -> None:
    bench.fake.quota["tpu-v5p-slice"] = 8
    assert bench.create() == 1
    assert "the project's quota tpu-v5p-slice is short of 8.0" in bench.notes.text
    assert len(bench.fake.creates) == 1


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        ("request", ['"tpuTopology": "2x2x2"', '"parent": "projects/p/locations/us-east5/clusters/c"']),
        (
            "gcloud",
            ["gcloud container node-pools create fray-v5p-16-", "--tpu-topology=2x2x2", "--num-nodes=2"],
        ),
        ("terraform", ['resource "google_container_node_pool" "fray-v5p-16-', 'tpu_topology = "2x2x2"']),
    ],
)
def test_a_dry_run_prints_the_requests_and_creates_nothing(
    bench: Bench, form: Form, parts: list[str]
) -> None:
    print_requests(bench.options(), form, bench.shell())
    for part in parts:
        assert bench.output.text.count(part) == 2
    assert bench.fake.creates == []
    if form == "request":
        assert len(json.loads(bench.output.text)) == 2
    assert bench.create() == 0
    print_requests(bench.options(), form, bench.shell())
    assert (bench.output.text.strip(), bench.notes.text) == (
        "[]" if form == "request" else "",
        "All that the job needs is there.\n",
    )


def test_a_dry_run_names_the_workload_policy_that_ironwood_needs(bench: Bench) -> None:
    bench.write_job({**JOB, "spec": {**JOB["spec"], "resources": {"tpu": {"type": "tpu7x-2x2x2"}}}})
    policy = "resource-policies create workload-policy tpu7x-2x2x2"
    print_requests(bench.options(), "gcloud", bench.shell())
    assert bench.output.text.count(policy) == 1
    forms: tuple[Form, ...] = ("request", "terraform")
    for form in forms:
        print_requests(bench.options(), form, bench.shell())
        assert (policy in bench.output.text, bench.notes.text.count(policy)) == (False, 1)
    assert bench.create(policy="cube") == 1
    assert "the workload policy isn't there" in bench.notes.text
    assert bench.create() == 0
    assert "workload policy tpu7x-2x2x2: made" in bench.notes.text
    assert bench.fake.policies["tpu7x-2x2x2"]["acceleratorTopology"] == "2x2x2"


def test_dynamic_slices_get_a_pool_for_each_cube(bench: Bench) -> None:
    bench.write_job({**JOB, "spec": {**JOB["spec"], "resources": {"tpu": {"type": "tpu7x-4x4x8"}}}})
    assert bench.create(dynamic_slices=True) == 0
    assert len(bench.fake.creates) == 4
    (policy,) = bench.fake.policies.values()
    assert policy["acceleratorTopologyMode"] == "PROVISION_ONLY"
    assert {pool.initial_node_count for pool in bench.fake.pools.values()} == {16}
    bench.write_job(JOB)
    with pytest.raises(InvalidRequestError, match="--dynamic-slices: is for tpu7x slices"):
        bench.create(dynamic_slices=True)


def test_on_autopilot_and_with_auto_provisioning_nothing_needs_to_be_created(bench: Bench) -> None:
    bench.fake.autopilot = True
    assert bench.create() == 0
    assert (
        "Autopilot makes the nodes when the job's pods wait: nothing needs to be created." in bench.notes.text
    )
    bench.fake.autopilot, bench.fake.limits = False, {"tpu-v5p-slice": 16}
    plan_pools(bench.options(), None, bench.shell())
    assert "node auto-provisioning makes the pools" in bench.output.text
    assert "POOL" not in bench.output.text
    assert bench.fake.creates == []


@pytest.mark.parametrize(
    ("limits", "told"),
    [({}, "it has no limit for tpu-v5p-slice"), ({"tpu-v5p-slice": 8}, "and the job needs 16")],
)
def test_auto_provisioning_that_cannot_make_them_is_told(
    bench: Bench, limits: dict[str, int], told: str
) -> None:
    bench.fake.limits = limits
    plan_pools(bench.options(), None, bench.shell())
    assert told in bench.output.text
    assert "`gcloud container clusters update` and `--max-accelerator=type=tpu-v5p-slice,count=16`" in (
        bench.output.text
    )
    assert bench.output.text.count("missing") == 2


def test_a_slice_needs_one_zone_of_a_cluster_with_several(bench: Bench) -> None:
    bench.fake.zones = ("us-east5-a", "us-east5-b")
    with pytest.raises(InvalidRequestError, match="must be one zone"):
        plan_pools(bench.options(), None, bench.shell())
    assert bench.create(zones=("us-east5-b",)) == 0


def test_zones_and_regions_of_the_job_count(bench: Bench) -> None:
    bench.fake.zones = ("us-east5-a", "us-east5-b")
    placement = {"zones": ["us-east5-a", "us-east5-b"]}
    bench.write_job({**JOB, "spec": {**JOB["spec"], "placement": placement}})
    plan_pools(bench.options(zones=("us-east5-b",)), None, bench.shell())
    assert bench.output.text.count("us-east5-b") == 2
    with pytest.raises(InvalidRequestError, match="the job may run in us-east5-a, us-east5-b only"):
        plan_pools(bench.options(zones=("us-east5-c",)), None, bench.shell())
    gpus = {"resources": {"gpu": {"type": "nvidia-l4", "count": 1}}, "placement": {"regions": ["us-west4"]}}
    bench.write_job({**JOB, "spec": {"entrypoint": {"command": ["true"]}, **gpus}})
    with pytest.raises(InvalidRequestError, match="the job may run in us-west4 only"):
        plan_pools(bench.options(), None, bench.shell())


def test_a_terminal_gets_a_bar_that_goes(bench: Bench) -> None:
    shell = bench.shell()
    terminal = Terminal()
    create_missing(bench.options(), replace(shell, notes=terminal))
    assert "node pools" in terminal.text
    assert "2/2" in terminal.text
    assert terminal.text.endswith("\x1b[2K")


def test_list_shows_who_uses_which_pool(bench: Bench) -> None:
    bench.create()
    used, free = bench.fake.creates
    bench.use(used, "train")
    list_pools(None, None, bench.shell())
    rows = {line.split()[0]: line for line in bench.output.text.splitlines()}
    assert "ml/train" in rows[used]
    assert rows[free].endswith("yes")
    assert "4 tpu-v5p-slice" in rows[free]


def test_delete_idle_asks_and_leaves_pools_in_use_and_pools_of_others(bench: Bench) -> None:
    bench.create()
    used, free = bench.fake.creates
    bench.use(used, "train")
    bench.fake.pools["default"] = type(bench.fake.pools[used])(name="default")
    delete: Callable[..., int] = delete_unused
    assert delete([], None, None, bench.shell(b"\n"), idle=True, yes=False) == 1
    header, row, question = bench.notes.text.splitlines()
    assert header.split() == ["POOL", "MACHINE", "TYPE", "NODES", "BOUGHT", "IDLE"]
    assert row.split() == [free, "ct5p-hightpu-4t", "1/2", "on", "demand", "yes"]
    assert question == "Delete 1 node pool of c? [y/N] Nothing was deleted."
    assert bench.fake.deletes == []
    assert delete([], None, None, bench.shell(b"y\n"), idle=True, yes=False) == 0
    assert bench.fake.deletes == [free]
    with pytest.raises(PoolInUseError, match="is used by ml/train"):
        delete([used], None, None, bench.shell(), idle=False, yes=True)
    with pytest.raises(PoolInUseError, match="there is no pool"):
        delete(["none"], None, None, bench.shell(), idle=False, yes=True)
    with pytest.raises(InvalidRequestError, match="either names or --idle"):
        delete([], None, None, bench.shell(), idle=False, yes=True)


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("request", '[\n  {\n    "name": "projects/p/locations/us-east5/clusters/c/nodePools/NAME"\n  }\n]'),
        ("gcloud", "gcloud container node-pools delete NAME --project=p --cluster=c --location=us-east5"),
        ("terraform", "terraform destroy -target=google_container_node_pool.NAME"),
    ],
)
def test_a_dry_run_prints_the_deletions_and_deletes_nothing(bench: Bench, form: Form, printed: str) -> None:
    bench.create()
    used, free = bench.fake.creates
    bench.use(used, "train")
    assert delete_unused([], None, None, bench.shell(), idle=True, form=form) == 0
    assert bench.output.text == printed.replace("NAME", free) + "\n"
    with pytest.raises(PoolInUseError):
        delete_unused([used], None, None, bench.shell(), idle=False, form=form)
    assert bench.fake.deletes == []


def test_a_form_without_dry_run_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    for words in (["create", "-f", str(tmp_path / "job.yaml")], ["delete", "--idle"]):
        with pytest.raises(InvalidRequestError, match="is for --dry-run"):
            app(["pools", *words, "-o", "terraform"], standalone_mode=False)


@pytest.mark.parametrize(("dns", "flag"), [(False, "--internal-ip"), (True, "--dns-endpoint")])
def test_a_private_control_plane_that_cannot_be_reached_says_how(bench: Bench, dns: bool, flag: str) -> None:
    def unreachable(*_: object) -> ClusterObjects:
        raise ClusterUnreachableError("https://10.0.0.7", "list nodes", "timed out")

    list_pools(None, None, bench.shell(read_objects=unreachable))
    assert "get-credentials" not in bench.notes.text
    bench.fake.private, bench.fake.dns_endpoint = True, dns
    list_pools(None, None, bench.shell(read_objects=unreachable))
    assert f"get-credentials c --location=us-east5 --project=p {flag}`" in bench.notes.text


def test_nothing_is_deleted_where_use_cannot_be_seen(bench: Bench) -> None:
    bench.create()

    def denied(*_: object) -> ClusterObjects:
        raise AccessDeniedError("me", "list", "pods", "ml", "https://192.0.2.7")

    with pytest.raises(PoolInUseError, match="can't be seen"):
        delete_unused([], None, None, bench.shell(read_objects=denied), idle=True, yes=True)
    list_pools(None, None, bench.shell(read_objects=denied))
    assert "?" in bench.output.text
    assert "'me' may not list pods" in bench.notes.text

    def another(*_: object) -> ClusterObjects:
        return replace(bench.read_objects(), server="https://198.51.100.1")

    with pytest.raises(PoolInUseError, match="can't be seen"):
        delete_unused([], None, bench.fake.path, bench.shell(read_objects=another), idle=True, yes=True)
    assert bench.fake.deletes == []
    assert delete_unused([], None, bench.fake.path, bench.shell(), idle=True, yes=True) == 0


def test_a_job_that_names_its_pool_or_a_compute_class_has_no_pools_to_derive(bench: Bench) -> None:
    for placement in ({"nodePool": "mine"}, {"computeClass": "tpus"}):
        bench.write_job({**JOB, "spec": {**JOB["spec"], "placement": placement}})
        with pytest.raises(InvalidRequestError, match="decides about the nodes"):
            plan_pools(bench.options(), None, bench.shell())


def test_a_refusal_of_the_whole_cluster_is_an_error(bench: Bench) -> None:
    with pytest.raises(NodePoolError, match="GKE doesn't know it"):
        list_pools(None, "projects/p/locations/us-east5/clusters/none", bench.shell())


def test_the_command_plans_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(JOB))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    app(["pools", "plan", "-f", str(tmp_path / "job.yaml"), "--zone", "us-east5-a"], standalone_mode=False)
    shown = capfd.readouterr()
    assert shown.out.count("needed") == 2
    assert "GKE's pools aren't known, nothing is compared: no GKE cluster is known" in shown.err
    words = [
        "pools",
        "create",
        "-f",
        str(tmp_path / "job.yaml"),
        "--zone",
        "us-east5-a",
        "--dry-run",
        "-o",
        "gcloud",
    ]
    app(words, standalone_mode=False)
    assert capfd.readouterr().out.count("--location=LOCATION") == 2


def test_without_credentials_the_requests_have_the_cluster_that_the_kubeconfig_names(bench: Bench) -> None:
    def refuse() -> Any:
        raise GkeCredentialsError("none")

    options = bench.options(zones=("us-east5-a",))
    print_requests(options, "gcloud", bench.shell(open_client=refuse))
    assert "--project=p" in bench.output.text
    assert "--cluster=c" in bench.output.text
    assert "GKE's pools aren't known, all pools are printed: no credentials" in bench.notes.text


def test_who_may_not_ask_gke_is_shown_the_pools_alone(bench: Bench) -> None:
    def refuse() -> Any:
        raise derive_error("c", 'Required "container.clusters.get" permission(s) for "c".')

    plan_pools(bench.options(zones=("us-east5-a",)), None, bench.shell(open_client=refuse))
    assert bench.output.text.count("needed") == 2
    assert "the account lacks the permission container.clusters.get" in bench.notes.text


def test_a_cluster_that_was_typed_must_be_one(bench: Bench) -> None:
    with pytest.raises(GkeClusterError, match="'x' is no path of a cluster"):
        plan_pools(replace(bench.options(), gke="x"), None, bench.shell())
    other = "projects/p/locations/us-east5/clusters/other"
    with pytest.raises(NodePoolError, match="GKE doesn't know it"):
        plan_pools(replace(bench.options(), gke=other), None, bench.shell())


def test_a_zone_of_another_region_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequestError, match="is europe-west4-a, and c is in us-east5"):
        plan_pools(bench.options(zones=("europe-west4-a",)), None, bench.shell())


@pytest.mark.parametrize(
    "resources", [{"tpu": {"type": "v5p-16"}}, {"gpu": {"type": "nvidia-tesla-t4", "count": 1}}]
)
def test_where_gke_makes_the_nodes_no_zone_and_no_machine_type_is_asked_for(
    bench: Bench, resources: dict[str, Any]
) -> None:
    bench.fake.autopilot, bench.fake.zones = True, ("us-east5-a", "us-east5-b")
    bench.write_job({**JOB, "spec": {**JOB["spec"], "resources": resources}})
    plan_pools(bench.options(), None, bench.shell())
    assert "Autopilot makes the nodes when the job's pods wait: nothing needs" in bench.output.text
    assert bench.create() == 0
    assert bench.fake.creates == []


def test_words_of_gke_send_no_commands_to_the_terminal(bench: Bench) -> None:
    bench.create()
    pool = bench.fake.pools[bench.fake.creates[0]]
    pool.status, pool.status_message = "ERROR", "\x1b]0;title\x07 it \x1b[31mbroke"
    list_pools(None, None, bench.shell())
    assert f"{pool.name}: it broke\n" in bench.notes.text


@pytest.mark.parametrize(
    ("choices", "told"),
    [({"queued": True}, "--queued: is for flex-start nodes"), ({"policy": "cube"}, "--policy: is for tpu7x")],
)
def test_an_option_that_would_change_nothing_is_refused(
    bench: Bench, choices: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        plan_pools(bench.options(**choices), None, bench.shell())


def test_a_pool_that_is_used_by_the_time_of_the_answer_stays(bench: Bench) -> None:
    bench.create()
    first = bench.fake.creates[0]

    class Thoughtful(io.BytesIO):
        def readline(self, *_: Any) -> bytes:
            bench.use(first, "late")
            return b"y\n"

    with pytest.raises(PoolInUseError, match=f"{first} is used by ml/late"):
        delete_unused([], None, None, replace(bench.shell(), stdin=Thoughtful()), idle=True)
    assert bench.fake.deletes == []
