"""A kind whose CRD or rights are missing leaves the other one as it is, and is served once it can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.faulty_proxy import Call, Fault, FaultyProxy, Harm
from fray_operator import process
from fray_operator.process import ServableKindError
from tests.integration.controller.actor_hands import Actors
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_subprocess import fetch
from tests.integration.controller.operator_thread import OperatorThread

NO_ACTORS = "FrayActor isn't served: the cluster has no frayactors.fray.dev: install the chart's CRDs first"
NO_JOBSETS = "FrayJob isn't served: the cluster has no jobsets.jobset.x-k8s.io: install JobSet first"

Serve = Callable[[Hands], object]


def serve_job(hands: Hands) -> None:
    hands.submit("train")
    hands.await_jobset("train-a1")


def serve_actor(hands: Hands) -> None:
    actors = Actors(hands)
    actors.submit("counter")
    actors.await_set("counter", replicas=1)


def without(*resources: str, status: int) -> Callable[[Call], Fault | None]:
    """Answer each list and watch of these by an error."""
    reason = {404: "NotFound", 403: "Forbidden"}[status]

    def harm(call: Call) -> Fault | None:
        asked = call.method == "GET" and call.path.rsplit("/", 1)[-1] in resources
        return Fault(Harm.ANSWER, status, reason) if asked else None

    return harm


def count_answers(operator: OperatorThread, resource: str, status: int) -> int:
    calls = list(operator.calls.items())  # its thread adds more
    return sum(count for (_, asked, code), count in calls if asked.startswith(resource) and code == status)


@pytest.mark.parametrize(
    ("missing", "status", "told", "served", "other"),
    [
        ("frayactors", 404, NO_ACTORS, serve_job, serve_actor),
        (
            "statefulsets",
            403,
            "FrayActor isn't served: statefulsets.apps can't be read",
            serve_job,
            serve_actor,
        ),
    ],
)
def test_a_kind_that_cant_be_served_leaves_the_other_alone_and_is_served_once_it_can_be(
    *,
    missing: str,
    status: int,
    told: str,
    served: Serve,
    other: Serve,
    proxy: FaultyProxy,
    proxied: Path,
    hands: Hands,
    settings_for: SettingsFor,
    new_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(process, "KINDS_SECONDS", 0.1)
    port = new_port()
    settings = settings_for(hands.namespace, http_port=port)
    proxy.rule = without(missing, status=status)
    first = OperatorThread(proxied, settings).start()
    try:
        served(hands)
        code, page = fetch(port, "/readyz")
        well, why = page.split("\n")
        assert (code, well, why.startswith(told)) == (200, "ok", True)
        # It has looked again.
        eventually(lambda: count_answers(first, missing, status) > 3)
        assert caplog.text.count(told) == 1
        proxy.rule = lambda _: None
        first.join()
        assert isinstance(first.failure, ServableKindError)
    finally:
        first.stop()
    second = OperatorThread(proxied, settings).start()
    try:
        other(hands)
        assert fetch(port, "/readyz") == (200, "ok")
    finally:
        second.stop()
    assert second.failure is None


def test_an_operator_that_can_serve_nothing_isnt_ready_and_begins_once_it_can(
    proxy: FaultyProxy,
    proxied: Path,
    hands: Hands,
    settings_for: SettingsFor,
    new_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "KINDS_SECONDS", 0.1)
    port = new_port()
    proxy.rule = without("jobsets", "frayactors", status=404)
    operator = OperatorThread(proxied, settings_for(hands.namespace, http_port=port)).start()
    try:
        eventually(lambda: fetch(port, "/readyz") == (503, f"{NO_JOBSETS}\n{NO_ACTORS}"))
        assert fetch(port, "/healthz") == (200, "ok")
        proxy.rule = lambda _: None
        serve_job(hands)
        serve_actor(hands)
    finally:
        operator.stop()
    assert operator.failure is None
