"""One of several operators leads; another one takes over when it dies, and never before it has stopped."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from e2e.faulty_proxy import Fault, FaultyProxy, Harm
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_subprocess import OperatorSubprocess

NewOperator = Callable[..., OperatorSubprocess]
SHORT, LONG = "30", "600"
"""Seconds after which a silent leader is replaced: as soon as a test may ask for, or never within one.

A leader that can't renew for two thirds of the time has lost the lease, as it should: a busy machine may
stop it for some seconds, several times in a row.
"""


@pytest.fixture
def new_operator(
    hands: Hands, control_plane: ControlPlane, tmp_path: Path, new_port: Callable[[], int]
) -> NewOperator:
    """Makes operators that share a Lease in the test's namespace, which they serve."""

    def make(name: str, *, lease_seconds: str = SHORT, kubeconfig: Path | None = None) -> OperatorSubprocess:
        return OperatorSubprocess(
            kubeconfig or control_plane.kubeconfig,
            tmp_path,
            name=name,
            port=new_port(),
            FRAY_NAMESPACES=hands.namespace,
            FRAY_LEASE_NAMESPACE=hands.namespace,
            FRAY_LEASE_SECONDS=lease_seconds,
            FRAY_BACKOFF_SECONDS="0.1",
        )

    return make


@pytest.fixture
def proxied_path(proxy: FaultyProxy, control_plane: ControlPlane, tmp_path: Path) -> Path:
    """A kubeconfig by way of the proxy, for one of the operators."""
    endpoint = control_plane.endpoint
    content = build_kubeconfig(url=proxy.url, authority=endpoint.authority, token=endpoint.token)
    return write_kubeconfig(tmp_path / "proxied", content)


def lease_of(hands: Hands) -> dict[str, Any]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{hands.namespace}/leases/fray-operator"
    answer = hands.api.get(path)
    return dict(answer.body["spec"]) if answer.ok else {}


def await_leader(hands: Hands, operator: OperatorSubprocess) -> None:
    # What the server has isn't enough: the answer to the claim may still be on its way.
    eventually(
        lambda: (
            "leading as" in operator.log
            and str(lease_of(hands).get("holderIdentity", "")).startswith(f"{operator.name}_")
        ),
        told=lambda: (lease_of(hands), operator.log),
    )


def await_standby(operator: OperatorSubprocess) -> None:
    eventually(lambda: operator.fetch("/readyz")[0] == 200, told=lambda: operator.log)
    assert operator.fetch("/healthz") == (200, "ok")
    assert "fray_leading 0.0" in operator.fetch("/metrics")[1]


def finish(hands: Hands, name: str) -> None:
    """Let the hosts of a job that runs end well, and wait for its end."""
    jobset = hands.await_jobset(f"{name}-a1")
    for pod in hands.pods_of(jobset):
        hands.exit(pod, 0)
    hands.complete(jobset)
    hands.await_phase(name, "Succeeded")


def start_job(hands: Hands, name: str) -> None:
    hands.submit(name)
    hands.run_all(hands.await_jobset(f"{name}-a1"))
    hands.await_phase(name, "Running")


def test_a_standby_takes_over_from_a_leader_that_was_killed(hands: Hands, new_operator: NewOperator) -> None:
    with new_operator("first") as first:
        await_leader(hands, first)
        assert "fray_leading 1.0" in first.fetch("/metrics")[1]
        start_job(hands, "train")
        with new_operator("second") as second:
            await_standby(second)
            first.signal(signal.SIGKILL)
            await_leader(hands, second)
            assert lease_of(hands)["leaseTransitions"] == 1
            finish(hands, "train")
            start_job(hands, "later")


def test_a_leader_that_was_stopped_ends_without_a_write_when_it_runs_on(
    hands: Hands, new_operator: NewOperator, proxy: FaultyProxy, proxied_path: Path
) -> None:
    with new_operator("first", kubeconfig=proxied_path) as first:
        await_leader(hands, first)
        start_job(hands, "train")
        with new_operator("second") as second:
            await_standby(second)
            first.signal(signal.SIGSTOP)
            await_leader(hands, second)
            # Much to do for the one that still believes that it leads.
            hands.edit("train", stopped=True)
            for number in range(5):
                hands.submit(f"later-{number}")
            asked = len(proxy.calls)
            first.signal(signal.SIGCONT)
            assert first.wait() == 1
            assert "no longer holds the lease" in first.log
            assert [call.what for call in proxy.calls[asked:] if call.method != "GET"] == []
            hands.collect_until(lambda: hands.job("train")["status"]["phase"] == "Stopped")
            for number in range(5):
                hands.await_jobset(f"later-{number}-a1")
            assert str(lease_of(hands)["holderIdentity"]).startswith("second_")


def test_a_leader_that_is_told_to_stop_hands_over_at_once(hands: Hands, new_operator: NewOperator) -> None:
    with new_operator("first", lease_seconds=LONG) as first:
        await_leader(hands, first)
        start_job(hands, "train")
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        assert lease_of(hands)["holderIdentity"] == ""
        # The Lease would have run for ten minutes.
        with new_operator("second", lease_seconds=LONG) as second:
            await_leader(hands, second)
            finish(hands, "train")
            second.signal(signal.SIGINT)
            second.signal(signal.SIGTERM)
            assert second.wait() == 0


def test_a_standby_that_is_told_to_stop_leaves_the_lease_alone(
    hands: Hands, new_operator: NewOperator
) -> None:
    with new_operator("first", lease_seconds=LONG) as first:
        await_leader(hands, first)
        with new_operator("second", lease_seconds=LONG) as second:
            await_standby(second)
            second.signal(signal.SIGTERM)
            assert second.wait() == 0
        assert str(lease_of(hands)["holderIdentity"]).startswith("first_")
        assert first.process.poll() is None


def test_a_leader_that_can_no_longer_reach_the_server_ends(
    hands: Hands, new_operator: NewOperator, proxy: FaultyProxy, proxied_path: Path
) -> None:
    with new_operator("first", kubeconfig=proxied_path) as first:
        await_leader(hands, first)
        proxy.rule = lambda _: Fault(Harm.HANG)
        assert first.wait() == 1
        assert "no longer holds the lease" in first.log
        assert str(lease_of(hands)["holderIdentity"]).startswith("first_")


def test_a_leader_that_is_told_to_stop_does_so_even_without_a_server(
    hands: Hands, new_operator: NewOperator, proxy: FaultyProxy, proxied_path: Path
) -> None:
    # Not lost before the signal is seen, which would be another end.
    with new_operator("first", kubeconfig=proxied_path) as first:
        await_leader(hands, first)
        proxy.rule = lambda _: Fault(Harm.HANG)
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        assert "the lease was not released" in first.log


def test_a_port_that_is_taken_is_told_and_the_process_ends(new_operator: NewOperator) -> None:
    operator = new_operator("first")
    with socket.socket() as taken:
        # As who holds the port for the operator allows it.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", operator.port))
        taken.listen()
        with operator as first:
            assert first.wait() == 1
            assert "set FRAY_HTTP_HOST or FRAY_HTTP_PORT" in first.log
            assert "Traceback" not in first.log


@pytest.mark.parametrize(
    ("variables", "code", "told"),
    [
        ({"FRAY_WORKERS": "many"}, 2, "FRAY_WORKERS=many: must be a whole number from 1 to 1000"),
        ({"KUBECONFIG": "/nonexistent"}, 1, "no cluster to talk to"),
    ],
    ids=["settings", "cluster"],
)
def test_a_process_that_cant_begin_says_why(
    variables: dict[str, str], code: int, told: str, tmp_path: Path, new_port: Callable[[], int]
) -> None:
    with OperatorSubprocess(tmp_path / "none", tmp_path, name="first", port=new_port(), **variables) as first:
        assert first.wait() == code
        assert told in first.log
        assert "Traceback" not in first.log
