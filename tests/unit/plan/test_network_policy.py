"""A pool's ports are open to its job's pods alone, and every other port to everybody, as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fray.plan.actor_set import build_actor_labels, build_actor_set
from fray.plan.network_policy import build_actor_network_policy, build_network_policy
from fray.plan.settings import PlanSettings
from fray.testing import build_frayjob
from fray.vocabulary import ACTOR_PORT, ACTOR_READY_PORT, LABEL_JOB_UID, POOL_PORTS
from fray.wire.frayactor import FrayActor

AGREED = Path(__file__).with_name("network_policy.yaml")
UID = "0c5cbe77-4b5e-4d5b-9d0a-6a1f3c1c7f51"
JOB = build_frayjob(metadata={"namespace": "ml", "uid": UID})
OWN, STRANGE = {LABEL_JOB_UID: UID}, {LABEL_JOB_UID: "another"}


def admits(policy: dict[str, Any], *, source: dict[str, str] | None, protocol: str, port: int) -> bool:
    """Whether a NetworkPolicy lets a pod of its namespace with these labels in; None: somebody elsewhere."""
    return any(_from(rule, source) and _to(rule, protocol, port) for rule in policy["spec"]["ingress"])


def _from(rule: dict[str, Any], source: dict[str, str] | None) -> bool:
    if "from" not in rule:
        return True
    wanted = [peer["podSelector"]["matchLabels"].items() for peer in rule["from"]]
    return source is not None and any(labels <= source.items() for labels in wanted)


def _to(rule: dict[str, Any], protocol: str, port: int) -> bool:
    if "ports" not in rule:
        return True
    return any(
        each["protocol"] == protocol
        and each.get("port", 1) <= port <= each.get("endPort", each.get("port", 65535))
        for each in rule["ports"]
    )


def test_it_is_the_policy_that_was_agreed_on() -> None:
    assert build_network_policy(JOB) == yaml.safe_load(AGREED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("port", [1, 22, 7076, 7077, 7080, 7096, 7097, 8471, 65535])
def test_ports_that_are_no_pools_are_open_to_all(port: int) -> None:
    policy = build_network_policy(JOB)
    guarded = POOL_PORTS[0] <= port <= POOL_PORTS[1]
    for source in (STRANGE, None):
        assert admits(policy, source=source, protocol="TCP", port=port) is not guarded
        assert admits(policy, source=source, protocol="UDP", port=port)
        assert admits(policy, source=source, protocol="SCTP", port=port)
    assert admits(policy, source=OWN, protocol="TCP", port=port)


@pytest.mark.parametrize(("port", "is_open"), [(7077, False), (7100, False), (10001, False), (8000, True)])
def test_strangers_reach_no_port_of_ray(port: int, is_open: bool) -> None:
    policy = build_network_policy(
        build_frayjob(metadata={"namespace": "ml", "uid": UID}, workers={"replicas": 1, "engine": "ray"})
    )
    assert admits(policy, source=STRANGE, protocol="TCP", port=port) is is_open
    assert admits(build_network_policy(JOB), source=STRANGE, protocol="TCP", port=7100)


RANGES = st.lists(
    st.tuples(st.integers(1, 65535), st.integers(1, 65535)).map(lambda pair: (min(pair), max(pair))),
    max_size=4,
)


@given(guarded=RANGES, port=st.integers(1, 65535))
def test_any_ranges_of_ports_can_be_guarded(guarded: list[tuple[int, int]], port: int) -> None:
    policy = build_network_policy(JOB, guarded=guarded)
    for edge in {port, 1, 65535, *(min(65535, last + 1) for _, last in guarded), *(f for f, _ in guarded)}:
        inside = any(first <= edge <= last for first, last in guarded)
        assert admits(policy, source=STRANGE, protocol="TCP", port=edge) is not inside
        assert admits(policy, source=OWN, protocol="TCP", port=edge)


def test_pods_of_another_job_of_that_name_are_strangers() -> None:
    policy = build_network_policy(build_frayjob(metadata={"namespace": "ml", "uid": "later"}))
    assert not admits(policy, source=OWN, protocol="TCP", port=POOL_PORTS[0])


def test_all_pods_of_its_namespace_may_call_an_actor_and_no_others() -> None:
    actor = FrayActor.from_manifest(
        {
            "metadata": {"name": "counter", "namespace": "ml", "uid": UID},
            "spec": {"name": "counter", "entrypoint": {"class": "app:Counter"}},
        }
    )
    labels = build_actor_labels(actor)
    policy = build_actor_network_policy(actor, labels=labels)
    pod = build_actor_set(actor, replicas=1, settings=PlanSettings())["spec"]["template"]["metadata"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["labels"].items()
    assert policy["metadata"]["ownerReferences"][0]["uid"] == UID
    for port in (ACTOR_PORT - 1, ACTOR_PORT, ACTOR_READY_PORT):
        assert admits(policy, source=STRANGE, protocol="TCP", port=port)
        assert admits(policy, source=None, protocol="TCP", port=port) is (port != ACTOR_PORT)


def test_a_job_that_is_in_no_cluster_is_known_by_its_name() -> None:
    policy = build_network_policy(build_frayjob())
    assert policy["spec"]["podSelector"] == {"matchLabels": {"fray.dev/job": "train"}}
    assert "ownerReferences" not in policy["metadata"]
