"""The commands of docs/gke.md that make node pools have twins in `fray pools create --dry-run -o gcloud`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from fray.nodepools.answers import ANSWERS, CODES
from fray.nodepools.bodies import GkeCluster, format_gcloud, format_policy_gcloud
from fray.nodepools.requests import PoolChoices
from tests.unit.nodepools.golden import build_request

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


def test_the_workload_policy_of_the_guide_is_the_one_that_is_printed() -> None:
    spec, choices = TWINS["tpu7x-16-a"]
    policy = build_request(spec, choices).policy
    assert policy is not None
    printed = shlex.split(format_policy_gcloud(policy, GkeCluster("p", "my-region", "c")))
    (found,) = re.findall(r"gcloud compute resource-policies create (?:.*\\\n)*.*", GUIDE)
    guide = shlex.split(found.replace("\\\n", " ").replace("$REGION", "my-region"))
    assert set(guide) <= set(printed)


def test_the_page_names_every_reason_that_a_refusal_can_have() -> None:
    page = (DOCS / "node-pools.md").read_text(encoding="utf-8")
    reasons = {row.reason for row in (*ANSWERS, *CODES.values())}
    assert {reason for reason in reasons if f"`{reason}`" not in page} == {
        "AlreadyExists",
        "AutopilotCluster",
        "NotFound",
    }
