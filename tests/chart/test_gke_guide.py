"""docs/gke.md says what is true elsewhere: node pools, versions, reasons, names of files and values."""

from __future__ import annotations

import re

import pytest
import yaml

from e2e.cluster.versions import part_named
from fray.accelerators import lookup_gpu, lookup_tpu
from fray.kube.resources import JOBSETS
from fray.vocabulary import LABEL_JOB, Reason
from fray.wire.validation import validate_manifest
from tests.chart.rendering import CHART

ROOT = CHART.parents[1]
GUIDE = (ROOT / "docs" / "gke.md").read_text(encoding="utf-8")
README = (CHART / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`.*) \| `(ct\S+)` \| `(\S+)` \| (\d+) \|$", GUIDE, flags=re.MULTILINE)
POOLS = [
    command.replace("\\\n", " ")
    for command in re.findall(r"gcloud container node-pools create (?:.*\\\n)*.*", GUIDE)
]


def flag(command: str, name: str) -> str | None:
    found = re.search(rf"--{name}=(\S+)", command)
    return found[1] if found else None


@pytest.mark.parametrize(("job", "machine", "topology", "nodes"), ROWS, ids=[row[0] for row in ROWS])
def test_the_table_of_tpu_pools_holds(job: str, machine: str, topology: str, nodes: str) -> None:
    name, *more = re.findall(r"`([^`]*)`", job)
    chips = int(more[0].removeprefix("chipsPerHost: ")) if more else None
    tpu = lookup_tpu(name, chips_per_host=chips)
    assert (tpu.machine_type, tpu.topology, tpu.hosts) == (machine, topology, int(nodes))


def test_the_table_of_tpu_pools_was_found() -> None:
    assert len(ROWS) > 5
    assert len(POOLS) == 5


@pytest.mark.parametrize("command", POOLS, ids=[command.split()[4] for command in POOLS])
def test_commands_make_pools_of_the_hardware_in_their_name(command: str) -> None:
    machine, accelerator = flag(command, "machine-type"), flag(command, "accelerator")
    if accelerator is not None:
        gpu = dict(part.split("=") for part in accelerator.split(","))
        assert machine in lookup_gpu(gpu["type"], count=int(gpu["count"])).machine_types
        return
    name = re.sub(r"-(a|\$slice)$", "", command.split()[4])
    tpu = lookup_tpu(name)
    assert machine == tpu.machine_type
    if tpu.multi_host:
        topology = flag(command, "tpu-topology") or flag(command, "placement-policy")
        assert topology is not None
        assert topology.removeprefix("tpu7x-") == tpu.topology
        assert flag(command, "num-nodes") == str(tpu.hosts)
    else:
        assert flag(command, "tpu-topology") is None


def test_pools_of_the_example_are_those_that_the_example_asks_for() -> None:
    job = validate_manifest(
        yaml.safe_load((ROOT / "examples/digits/frayjob.yaml").read_text(encoding="utf-8"))
    )
    assert job.spec.resources.tpu is not None
    assert f"node-pools create {job.spec.resources.tpu.type}-$slice" in GUIDE
    slices = re.search(r"for slice in ([a-z ]+); do", GUIDE)
    assert slices is not None
    assert job.spec.replicas == len(slices[1].split())
    assert f"s|{job.spec.environment.image}|" in GUIDE


def test_every_reason_is_explained_and_none_that_does_not_exist() -> None:
    troubleshooting = GUIDE[GUIDE.index("## Troubleshooting") : GUIDE.index("## What to check first")]
    rows = re.findall(r"^\| (`[A-Z].*?) \|", troubleshooting, flags=re.MULTILINE)
    last = troubleshooting.strip().splitlines()[-1]
    explained = re.findall(r"`([A-Z][A-Za-z]+)`", " ".join([*rows, last]))
    assert sorted(explained) == sorted(reason.value for reason in Reason)


def test_versions_and_names_are_the_ones_in_use() -> None:
    assert f"--version {part_named('jobset').version.removeprefix('v')}" in GUIDE
    assert f"--selector={LABEL_JOB}=" in GUIDE
    assert f"the cluster has no {JOBSETS}`" in GUIDE


def test_manifests_in_the_guide_are_legal() -> None:
    manifests = re.findall(r"<<'END'\n(.*?)\nEND", GUIDE, flags=re.DOTALL)
    assert manifests
    for manifest in manifests:
        validate_manifest(yaml.safe_load(manifest))


@pytest.mark.parametrize("text", [GUIDE, README], ids=["guide", "chart"])
def test_values_that_are_named_exist(text: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    named = set(re.findall(r"--set '?([A-Za-z.]+)=", text))
    named |= set(
        re.findall(r"`((?:rbac|jobs|image|runtimeImage|serviceMonitor|networkPolicy)\.[A-Za-z]+)", text)
    )
    assert named
    for path in named:
        here = values
        for key in path.split("."):
            assert key in here, path
            here = here[key]


@pytest.mark.parametrize(("name", "text"), [("docs/gke.md", GUIDE), ("charts/fray/README.md", README)])
def test_links_lead_somewhere(name: str, text: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, target
