"""What every legal TPU name means, and the lists and keys that other parts build on."""

from __future__ import annotations

import csv
import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fray.accelerators as acc

TABLE = Path(__file__).parent / "data" / "tpu_names.tsv"


def read_table() -> list[dict[str, str]]:
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t"))


def all_legal_names() -> list[str]:
    return [
        f"{spelling}-{rest}"
        for generation in acc.generations()
        for spelling in generation.spellings
        for rest in (*generation.sizes, *generation.topologies)
    ]


# --- names that mean a slice -------------------------------------------------------------------------


@pytest.mark.parametrize("row", read_table(), ids=lambda row: row["name"])
def test_tpu_name_means_this_slice(row: dict[str, str]) -> None:
    found = acc.lookup_tpu(row["name"])
    assert found.type == row["canonical"]
    assert found.generation == row["canonical"].split("-")[0]
    assert found.topology == row["topology"]
    assert found.chips == int(row["chips"])
    assert found.hosts == int(row["hosts"])
    assert found.chips_per_host == int(row["chips_per_host"])
    assert found.machine_type == row["machine_type"]
    assert found.accelerator_label == row["accelerator_label"]
    assert found.multi_host == (int(row["hosts"]) > 1)


def test_the_table_covers_every_generation_and_machine_type() -> None:
    rows = read_table()
    assert len(rows) >= 80
    assert {row["canonical"].split("-")[0] for row in rows} == {g.name for g in acc.generations()}
    # The two-host form of 2x4 needs chipsPerHost, but its machine type also carries larger slices.
    machines = {machine.machine_type for g in acc.generations() for machine in g.machines}
    assert {row["machine_type"] for row in rows} == machines


@pytest.mark.parametrize(
    ("name", "topology", "canonical"),
    [
        ("v5p-128", "4x4x4", "v5p-128"),
        ("v5p-512", "4x8x8", "v5p-512"),
        ("v5p-512", "4x4x16", "v5p-4x4x16"),
        ("v5p-4x4x16", "4x4x16", "v5p-4x4x16"),
        ("v5p-4x4x8", "4x4x8", "v5p-256"),
        ("v4-2048", "4x16x16", "v4-4x16x16"),
        ("tpu7x-18432", "16x16x36", "tpu7x-16x16x36"),
        ("v5e-16", "4x4", "v5litepod-16"),
    ],
)
def test_explicit_topology_of_as_many_chips_is_taken(name: str, topology: str, canonical: str) -> None:
    found = acc.lookup_tpu(name, topology=topology)
    assert (found.topology, found.type) == (topology, canonical)
    assert acc.lookup_tpu(found.type) == found


@pytest.mark.parametrize(("name", "prefix"), [("v6e-8", "ct6e-standard"), ("v5litepod-8", "ct5lp-hightpu")])
def test_2x4_is_one_host_of_8_unless_4_chips_per_host_are_asked_for(name: str, prefix: str) -> None:
    one = acc.lookup_tpu(name)
    assert (one.hosts, one.chips_per_host, one.machine_type) == (1, 8, f"{prefix}-8t")
    assert acc.lookup_tpu(name, chips_per_host=8) == one

    two = acc.lookup_tpu(name, chips_per_host=4)
    assert (two.hosts, two.chips_per_host, two.machine_type) == (2, 4, f"{prefix}-4t")
    assert two.multi_host
    assert (two.type, two.topology, two.chips) == (one.type, one.topology, one.chips)
    assert one.needs_accelerator_count
    assert two.needs_accelerator_count


def test_only_2x4_of_two_generations_needs_the_accelerator_count() -> None:
    ambiguous = {name for name in acc.legal_tpu_names() if acc.lookup_tpu(name).needs_accelerator_count}
    assert ambiguous == {"v5litepod-8", "v6e-8"}


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("v4-8", acc.HostSize(240, 400)),
        ("v5litepod-16", acc.HostSize(112, 192)),
        ("v5p-16", acc.HostSize(208, 448)),
        ("v6e-16", acc.HostSize(180, 720)),
        ("v5litepod-8", acc.HostSize(224, 384)),
        ("v6e-1", acc.HostSize(44, 176)),
        ("tpu7x-8", acc.HostSize(224, 960)),
        ("tpu7x-2", None),
    ],
)
def test_size_of_a_host_is_known_or_none(name: str, size: acc.HostSize | None) -> None:
    assert acc.lookup_tpu(name).size == size


def test_a_slice_is_frozen_and_survives_pickling() -> None:
    found = acc.lookup_tpu("v5p-16")
    with pytest.raises(FrozenInstanceError):
        found.topology = "2x2x1"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found) == hash(acc.lookup_tpu("v5p-2x2x2"))


# --- properties of all legal names -------------------------------------------------------------------


@given(name=st.sampled_from(all_legal_names()), data=st.data())
def test_every_legal_name_round_trips(name: str, data: st.DataObject) -> None:
    topology = data.draw(st.sampled_from(acc.legal_topologies(name)))
    generation = acc.generations_by_spelling()[name.partition("-")[0]]
    chips_per_host = data.draw(st.sampled_from(generation.chips_per_host(topology)))

    found = acc.lookup_tpu(name, topology=topology, chips_per_host=chips_per_host)

    assert acc.lookup_tpu(found.type, chips_per_host=chips_per_host) == found
    assert acc.lookup_tpu(found.type).type == found.type
    assert found.hosts * found.chips_per_host == found.chips
    assert found.chips == math.prod(int(part) for part in found.topology.split("x"))
    rest = name.partition("-")[2]
    assert rest in (found.topology, str(found.chips * generation.cores_per_chip))


def test_every_canonical_name_is_its_own() -> None:
    assert [acc.lookup_tpu(name).type for name in acc.legal_tpu_names()] == list(acc.legal_tpu_names())


# --- the lists that other parts print and generate rules from ----------------------------------------


def test_legal_names_ascend_by_generation_and_number() -> None:
    names = acc.legal_tpu_names()
    assert names[:3] == ("v3-8", "v3-32", "v3-64")
    assert names[-1] == "tpu7x-18432"
    assert names.index("v5p-128") < names.index("v5p-1024")
    assert len(set(names)) == len(names)
    for generation in acc.generations():
        assert list(generation.sizes) == sorted(generation.sizes)


@pytest.mark.parametrize(
    ("generation", "largest", "chips"),
    [
        ("v3", "32x32", 1024),
        ("v4", "16x16x16", 4096),
        ("v4lite", "2x2", 4),
        ("v5litedevice", "2x4", 8),
        ("v5litepod", "16x16", 256),
        ("v5p", "16x16x24", 6144),
        ("v6e", "16x16", 256),
        ("tpu7", "4x8x8", 256),
        ("tpu7x", "16x24x24", 9216),
    ],
)
def test_largest_slice_of_each_generation(generation: str, largest: str, chips: int) -> None:
    topologies = acc.generations_by_spelling()[generation].topologies
    most = max(math.prod(map(int, topology.split("x"))) for topology in topologies)
    assert most == chips
    first = next(t for t in topologies if math.prod(map(int, t.split("x"))) == chips)
    assert first == largest


@pytest.mark.parametrize(
    "generation", [g for g in acc.generations() if g.dimensions == 3], ids=lambda g: g.name
)
def test_3d_topologies_follow_gkes_rule(generation: acc.TpuGeneration) -> None:
    small = {"1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4"}
    for topology in set(generation.topologies) - small:
        dimensions = [int(part) for part in topology.split("x")]
        assert math.prod(dimensions) > 64
        assert all(side % 4 == 0 for side in dimensions)
        assert dimensions == sorted(dimensions)
    assert small - {"1x1x1"} <= set(generation.topologies)


@pytest.mark.parametrize(("generation", "longest"), [("v4", 16), ("v5p", 256), ("tpu7", 16), ("tpu7x", 256)])
def test_longest_side_of_3d_topologies(generation: str, longest: int) -> None:
    topologies = acc.generations_by_spelling()[generation].topologies
    assert max(int(part) for t in topologies for part in t.split("x")) == longest


@pytest.mark.parametrize("generation", acc.generations(), ids=lambda g: g.name)
def test_a_generation_tells_what_rules_are_generated_from(generation: acc.TpuGeneration) -> None:
    assert generation.size_counts == {1: "chips", 2: "TensorCores"}[generation.cores_per_chip]
    assert {len(t.split("x")) for t in generation.topologies} == {generation.dimensions}
    for topology in generation.topologies:
        assert generation.chips_per_host(topology)
        assert generation.machines_of(topology)
    assert generation.chips_per_host("7x7") == ()
    assert generation.topologies_of_size("7") == ()


def test_all_of_v5es_spellings_and_no_others_have_aliases() -> None:
    assert {g.name: g.aliases for g in acc.generations() if g.aliases} == {"v5litepod": ("v5e", "v5lite")}
    spellings = [spelling for g in acc.generations() for spelling in g.spellings]
    assert len(set(spellings)) == len(spellings)
    # The CRD allows 32 characters.
    assert max(map(len, all_legal_names())) <= 32


def test_legal_chips_per_host() -> None:
    by_name = acc.generations_by_spelling()
    assert by_name["v6e"].chips_per_host("2x4") == (8, 4)
    assert by_name["v6e"].chips_per_host("1x1") == (1,)
    assert by_name["v6e"].chips_per_host("16x16") == (4,)
    assert by_name["v5litedevice"].chips_per_host("2x4") == (8,)
    assert by_name["tpu7x"].chips_per_host("1x1x1") == (1,)
    assert by_name["v5p"].chips_per_host("2x2x1") == (4,)


def test_legal_topologies_of_a_type() -> None:
    assert acc.legal_topologies("v5p-512") == ("4x8x8", "4x4x16")
    assert acc.legal_topologies("v5p-4x4x16") == ("4x4x16",)
    assert acc.legal_topologies("v6e-8") == ("2x4",)


# --- the module itself -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (acc.TPU_RESOURCE, "google.com/tpu"),
        (acc.TAINT_TPU, "google.com/tpu"),
        (acc.GPU_RESOURCE, "nvidia.com/gpu"),
        (acc.TAINT_GPU, "nvidia.com/gpu"),
        (acc.LABEL_TPU_ACCELERATOR, "cloud.google.com/gke-tpu-accelerator"),
        (acc.LABEL_TPU_TOPOLOGY, "cloud.google.com/gke-tpu-topology"),
        (acc.LABEL_ACCELERATOR_COUNT, "cloud.google.com/gke-accelerator-count"),
        (acc.LABEL_GPU_ACCELERATOR, "cloud.google.com/gke-accelerator"),
        (acc.LABEL_SPOT, "cloud.google.com/gke-spot"),
        (acc.TAINT_SPOT, "cloud.google.com/gke-spot"),
        (acc.LABEL_FLEX_START, "cloud.google.com/gke-flex-start"),
        (acc.TAINT_FLEX_START, "cloud.google.com/gke-flex-start"),
        (acc.LABEL_COMPUTE_CLASS, "cloud.google.com/compute-class"),
        (acc.TAINT_COMPUTE_CLASS, "cloud.google.com/compute-class"),
        (acc.TAINT_QUEUED, "cloud.google.com/gke-queued"),
        (acc.LABEL_RESERVATION_NAME, "cloud.google.com/reservation-name"),
        (acc.LABEL_RESERVATION_PROJECT, "cloud.google.com/reservation-project"),
        (acc.LABEL_RESERVATION_AFFINITY, "cloud.google.com/reservation-affinity"),
        (acc.LABEL_NODE_POOL, "cloud.google.com/gke-nodepool"),
        (acc.LABEL_ZONE, "topology.kubernetes.io/zone"),
        (acc.LABEL_REGION, "topology.kubernetes.io/region"),
        (acc.TAINT_ARCH, "kubernetes.io/arch"),
    ],
)
def test_keys_of_labels_taints_and_resources_are_gkes(key: str, value: str) -> None:
    assert key == value


def test_importing_it_expands_no_table_and_loads_only_the_standard_library() -> None:
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import fray.accelerators as acc\n"
        "assert all(set(vars(g)) == set(type(g).__dataclass_fields__) for g in acc.generations())\n"
        "loaded = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(loaded - set(sys.stdlib_module_names)))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "['fray']"
