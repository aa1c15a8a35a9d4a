"""Commands of docs/gke.md that Fray tells too: pools by `fray pools create --dry-run`, others by `doctor`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from fray.cluster.kubernetes.examination import FRAY_INSTALL, JOBSET_INSTALL
from fray.errors import GkeClusterError
from fray.nodepools.answers import ANSWERS, CODES
from fray.nodepools.bodies import GkeCluster, format_deletion, format_gcloud, format_policy_gcloud
from fray.nodepools.examination import judge_apis
from fray.nodepools.existing import Cluster, derive_provisioning
from fray.nodepools.requests import PoolChoices
from fray.plan.placement import derive_demand
from tests.unit.nodepools.golden import build_job, build_request

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "gke.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(command.replace("\\\n", " "))
    for command in re.findall(r"gcloud container node-pools create (?:.*\\\n)*.*", GUIDE)
]
ZONE = ("my-region-a",)
TWINS: dict[str, tuple[dict[str, Any], PoolChoices]] = {
    "v5p-16-$slice": ({"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}}, PoolChoices(zones=ZONE)),
    "tpu7x-16-a": ({"resources": {"tpu": {"type": "tpu7x-2x2x2"}}}, PoolChoices(zones=ZONE)),
    "v6e-8": ({"replicas": 4, "resources": {"tpu": {"type": "v6e-8"}}}, PoolChoices(zones=ZONE)),
    "h100": ({"replicas": 4, "resources": {"gpu": {"type": "nvidia-h100-80gb", "count": 8}}}, PoolChoices()),
    "l4": (
        {"replicas": 4, "resources": {"gpu": {"type": "nvidia-l4", "count": 1}}},
        PoolChoices(machine_type="g2-standard-12", spot=True),
    ),
}
NOT_TOLD = {
    # Versions, and sizes of the guide's own: whoever is told chooses them.
    *("--version", "0.12.0", "--enable-autoprovisioning", "--max-cpu=2000", "--max-memory=8000"),
    # Longer forms of what is told, and the registry of step 4.
    *("--namespace", "--set", "--wait"),
}
WITHOUT_TWIN = {
    # A project, a cluster and a registry are there before Fray is, and go after it.
    *("gcloud config set", "gcloud projects describe", "gcloud container clusters create"),
    *("gcloud container clusters delete", "gcloud artifacts repositories create"),
    *("gcloud artifacts repositories add-iam-policy-binding", "gcloud artifacts repositories delete"),
    *("gcloud auth configure-docker", "gcloud storage buckets add-iam-policy-binding"),
    # Which queues there are is an administrator's choice.
    "helm install kueue",
}
LONG = {"container", "compute", "artifacts", "storage"}
ELSEWHERE = ("--cluster=", "--location=", "--node-locations=")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[4])
def test_each_command_of_the_guide_is_shown_by_fray_pools(words: list[str]) -> None:
    spec, choices = TWINS[words[4]]
    ours = shlex.split(
        format_gcloud(build_request(spec, choices), GkeCluster("p", "my-region", "c"), made_by="cli")
    )
    wanted = {word for word in words[5:] if not word.startswith(ELSEWHERE)}
    assert wanted <= set(ours)


def test_all_commands_of_the_guide_were_looked_at() -> None:
    assert {words[4] for words in COMMANDS} == set(TWINS)


def test_each_other_command_of_the_guide_is_in_its_table_or_has_no_twin() -> None:
    blocks = "".join(re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)).replace("\\\n", " ")
    words = [
        match.split() for match in re.findall(r"(?:^|\$\()\s*((?:gcloud|helm) .*)", blocks, re.MULTILINE)
    ]
    heads = {" ".join(each[: 4 if each[1] in LONG else 3]) for each in words}
    (table,) = re.findall(r"\| command \| who says it \|\n(?:\|.*\n)+", GUIDE)
    told = set(re.findall(r"`((?:gcloud|helm) [^`]*)`", table))
    assert heads - told == WITHOUT_TWIN
    assert told - heads == {"gcloud projects add-iam-policy-binding"}  # docs/node-pools.md has that one


def test_the_guides_deletion_is_what_a_dry_run_prints() -> None:
    (found,) = re.findall(r"^gcloud container node-pools delete .*", GUIDE, re.MULTILINE)
    guide = shlex.split(found.replace("$CLUSTER", "c").replace("$REGION", "my-region"))
    printed = format_deletion(["v5p-16-a"], GkeCluster("p", "my-region", "c"), "gcloud")
    assert set(guide) <= set(shlex.split(printed))


def test_the_workload_policy_of_the_guide_is_the_one_that_is_printed() -> None:
    spec, choices = TWINS["tpu7x-16-a"]
    policy = build_request(spec, choices).policy
    assert policy is not None
    printed = shlex.split(format_policy_gcloud(policy, GkeCluster("p", "my-region", "c")))
    (found,) = re.findall(r"gcloud compute resource-policies create (?:.*\\\n)*.*", GUIDE)
    guide = shlex.split(found.replace("\\\n", " ").replace("$REGION", "my-region"))
    assert set(guide) <= set(printed)


def words_of(pattern: str) -> set[str]:
    """Return the words of the guide's one command of this pattern, but for names of the reader's own."""
    (found,) = re.findall(rf"^{pattern}(?:.*\\\n)*.*", GUIDE, re.MULTILINE)
    words = shlex.split(found.replace("\\\n", " "))
    return {word for word in words if "$" not in word and word != "--create-namespace"}


LIMITED = Cluster(zones=ZONE, auto_provisioning=True, limits={})
SLICES = derive_demand(build_job({"resources": {"tpu": {"type": "v5p-128"}}}))


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("gcloud services enable", judge_apis(set(), project="p").next_step),
        ("gcloud container clusters get-credentials", GkeClusterError("").next_step),
        ("helm install jobset", JOBSET_INSTALL),
        ("helm install fray charts/fray", FRAY_INSTALL),
        ("gcloud container clusters update", str(derive_provisioning(LIMITED, SLICES))),
    ],
)
def test_what_doctor_and_plan_tell_to_do_is_the_guides_command(pattern: str, told: str) -> None:
    wanted = words_of(pattern) - NOT_TOLD
    assert {word for word in wanted if word not in told} == set()


def test_the_page_names_every_reason_that_a_refusal_can_have() -> None:
    page = (DOCS / "node-pools.md").read_text(encoding="utf-8")
    reasons = {row.reason for row in (*ANSWERS.values(), *CODES.values())}
    assert {reason for reason in reasons if f"`{reason}`" not in page} == {
        "AlreadyExists",
        "AutopilotCluster",
        "NotFound",
    }
