"""docs/gke.md says what is true elsewhere: node pools, versions, reasons, names of files and values."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest
import yaml

from e2e.cluster.versions import part_named
from fray.accelerators import lookup_gpu, lookup_tpu
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.vocabulary import LABEL_JOB
from fray.wire.validation import validate_manifest
from tests.chart.rendering import CHART, kinds, render, run_helm

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


def test_versions_and_names_are_the_ones_in_use() -> None:
    for part in ("jobset", "kueue"):
        version = part_named(part).version.removeprefix("v")
        assert f"charts/{part} --version {version} " in GUIDE
    assert f"--selector={LABEL_JOB}=" in GUIDE


def bash_blocks(text: str) -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_variables_are_set_before_they_are_used() -> None:
    known: set[str] = set()
    for line in "\n".join(bash_blocks(GUIDE)).splitlines():
        # What a line sets is known to the rest of it.
        for name in re.findall(r"(?:(?<=\s)|^)([A-Z]+)=|\bfor (\w+) in|\$(\w+)", line):
            assigned, counter, used = name
            known |= {assigned, counter}
            assert not used or used in known, (used, line)
    assert {"PROJECT", "REGISTRY", "NUMBER", "CLUSTER"} <= known


def helm_commands(verb: str) -> list[list[str]]:
    """The words of all `helm VERB` of this chart in the guide and both READMEs, placeholders filled in."""
    text = "\n".join(bash_blocks(GUIDE + README + (ROOT / "README.md").read_text(encoding="utf-8")))
    text = text.replace("\\\n", " ")
    commands = re.findall(rf"^helm {verb} fray charts/fray[^|\n]*", text, flags=re.MULTILINE)
    return [
        shlex.split(re.sub(r"\$REGISTRY|REGISTRY_HOST/PATH", "r.example/p", command), comments=True)
        for command in commands
    ]


def test_helm_takes_the_values_of_every_command() -> None:
    commands = [command for verb in ("install", "upgrade", "template") for command in helm_commands(verb)]
    assert len(commands) == 7
    for command in commands:
        words = iter(command)
        told = [(word, next(words)) for word in words if word in ("--set", "--namespace", "-n")]
        assert {name for name, _ in told} & {"--namespace", "-n"}
        assert "kind: Deployment" in run_helm(
            "template", "fray", str(CHART), *(word for pair in told for word in pair)
        )


def test_what_an_administrator_applies_for_a_team_is_nothing_that_helm_makes_later() -> None:
    (command,) = helm_commands("template")
    roles = yaml.safe_load_all(run_helm("template", "fray", str(CHART), *command[4:]))
    (install,) = [words for words in helm_commands("install") if "rbac.create=false" in words]
    made = render({"scope": "namespace", "rbac": {"create": False}}, namespace="team")
    assert install[install.index("--namespace") + 1] == "team"
    assert {role["kind"] for role in roles} == {"Role", "RoleBinding"}
    assert not kinds(made) & {"Role", "RoleBinding"}


def test_the_example_is_edited_into_legal_jobs() -> None:
    """The very `sed` commands of the guide, run by a shell."""
    commands = re.findall(
        r"^(sed (?:.*\\\n)*?.*?frayjob\.yaml)(?: \\\n)?.*kubectl", GUIDE, flags=re.MULTILINE
    )
    assert len(commands) == 2
    jobs = []
    for command in commands:
        shell = {"REGISTRY": "r.example/p/fray", "PATH": os.environ["PATH"]}
        run = subprocess.run(["sh", "-euc", command], env=shell, cwd=ROOT, capture_output=True, check=True)
        jobs.append(validate_manifest(yaml.safe_load(run.stdout)))
    on_cpus, on_chips = jobs
    assert on_cpus.spec.environment.image == "r.example/p/fray/fray-digits:0.1.0"
    assert on_chips.spec.environment.image == "r.example/p/fray/fray-digits:0.1.0-tpu"
    assert on_chips.metadata.name != on_cpus.metadata.name
    assert [variable.value for job in jobs for variable in job.spec.environment.env] == ["cpu", "tpu"]


def test_manifests_in_the_guide_are_legal() -> None:
    manifests = re.findall(r"<<'END'\n(.*?)\nEND", GUIDE, flags=re.DOTALL)
    assert manifests
    for manifest in manifests:
        validate_manifest(yaml.safe_load(manifest))


def test_the_queue_of_the_guide_has_room_for_the_job_that_names_it() -> None:
    (text,) = re.findall(r"<<'QUEUES'\n(.*?)\nQUEUES", GUIDE, flags=re.DOTALL)
    made = {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}
    (job,) = [
        job
        for manifest in re.findall(r"<<'END'\n(.*?)\nEND", GUIDE, flags=re.DOTALL)
        if (job := validate_manifest(yaml.safe_load(manifest))).spec.queue is not None
    ]
    assert job.spec.queue is not None
    assert job.spec.queue.name == made["LocalQueue"]["metadata"]["name"]
    assert job.spec.queue.priority_class == made["WorkloadPriorityClass"]["metadata"]["name"]
    (group,) = made["ClusterQueue"]["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    assert made["LocalQueue"]["spec"]["clusterQueue"] == made["ClusterQueue"]["metadata"]["name"]
    assert flavor["name"] == made["ResourceFlavor"]["metadata"]["name"]
    pod = build_attempt(job, attempt=1, settings=PlanSettings()).jobset["spec"]["replicatedJobs"][0]
    spec = pod["template"]["spec"]["template"]["spec"]
    # They are merged: the same key with another value keeps a job from its nodes for ever.
    assert made["ResourceFlavor"]["spec"]["nodeLabels"] == spec["nodeSelector"]
    requests = spec["containers"][0]["resources"]["requests"]
    assert list(requests) == group["coveredResources"] == [each["name"] for each in flavor["resources"]]
    chips = int(requests["google.com/tpu"]) * pod["replicas"] * pod["template"]["spec"]["completions"]
    assert [each["nominalQuota"] for each in flavor["resources"]] == [chips]


@pytest.mark.parametrize("text", [GUIDE, README], ids=["guide", "chart"])
def test_values_that_are_named_exist(text: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    named = set(re.findall(r"--set '?([A-Za-z.]+)=", text))
    named |= set(
        re.findall(
            r"`((?:rbac|jobs|image|runtimeImage|serviceMonitor|networkPolicy)\.(?!batch`)[A-Za-z]+)", text
        )
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
