"""/healthz of a leader: it fails while a watch is silent for too long, and only then.

One for which kopf watches nothing ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.faulty_proxy import Call, Fault, FaultyProxy, Harm
from fray_operator import process
from fray_operator.source import UnwatchedKindError
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_subprocess import fetch
from tests.integration.controller.operator_thread import OperatorThread


def await_illness(port: int) -> str:
    """Return what an operator says once it isn't healthy; it may hear again right after."""
    _, told = eventually(lambda: (page := fetch(port, "/healthz"))[0] == 503 and page)
    return str(told)


def test_a_leader_whose_watch_is_silent_is_not_healthy_until_it_hears_again(
    proxy: FaultyProxy,
    proxied: Path,
    hands: Hands,
    settings_for: SettingsFor,
    monkeypatch: pytest.MonkeyPatch,
    new_port: Callable[[], int],
) -> None:
    port = new_port()
    operator = OperatorThread(proxied, settings_for(hands.namespace, http_port=port)).start()
    try:
        hands.submit("train")
        jobset = hands.await_jobset("train-a1")
        assert fetch(port, "/readyz") == (200, "ok")
        assert fetch(port, "/healthz") == (200, "ok")
        eventually(lambda: proxy.silence_watches("pods"))
        monkeypatch.setattr(process, "SILENCE_LIMIT_SECONDS", 0.5)
        assert await_illness(port).startswith("a watch has been silent for ")
        # Silent, but for no longer than is normal.
        monkeypatch.setattr(process, "SILENCE_LIMIT_SECONDS", 300.0)
        assert fetch(port, "/healthz") == (200, "ok")
        eventually(lambda: proxy.cut_watches("pods"))
        hands.run_all(jobset)
        hands.await_phase("train", "Running")
        assert operator.alive, operator.failure
    finally:
        operator.stop()


def test_a_leader_for_which_kopf_no_longer_watches_is_not_healthy(
    kubeconfig: Path,
    hands: Hands,
    settings_for: SettingsFor,
    monkeypatch: pytest.MonkeyPatch,
    new_port: Callable[[], int],
) -> None:
    port = new_port()
    operator = OperatorThread(kubeconfig, settings_for(hands.namespace, http_port=port)).start()
    try:
        hands.submit("train")
        hands.await_jobset("train-a1")
        assert fetch(port, "/healthz") == (200, "ok")
        monkeypatch.setattr(process.ListWatch, "silent_seconds", 0.0)
        monkeypatch.setattr(process, "SILENCE_LIMIT_SECONDS", 0.5)
        # kopf has one for each kind.
        assert await_illness(port).endswith((": that of frayjobs.fray.dev", ": that of frayactors.fray.dev"))
        monkeypatch.setattr(process, "SILENCE_LIMIT_SECONDS", 300.0)
        assert fetch(port, "/healthz") == (200, "ok")
    finally:
        operator.stop()


def test_the_watch_of_nodes_counts_as_long_as_they_may_be_read(
    proxy: FaultyProxy,
    proxied: Path,
    hands: Hands,
    settings_for: SettingsFor,
    monkeypatch: pytest.MonkeyPatch,
    new_port: Callable[[], int],
) -> None:
    def forbid_nodes(call: Call) -> Fault | None:
        return Fault(Harm.ANSWER, 403, "Forbidden") if call.path.endswith("/nodes") else None

    port = new_port()
    metric = 'fray_watch_silent_seconds{resource="nodes"} '
    operator = OperatorThread(proxied, settings_for(hands.namespace, http_port=port)).start()
    try:
        hands.submit("train")
        hands.await_jobset("train-a1")
        monkeypatch.setattr(process.NodeInformer, "silent_seconds", 1000.0)
        assert await_illness(port) == "a watch has been silent for 1000 s: that of nodes"
        assert f"{metric}1000.0" in fetch(port, "/metrics")[1]
        proxy.rule = forbid_nodes
        eventually(lambda: proxy.cut_watches("nodes"))
        eventually(lambda: fetch(port, "/healthz") == (200, "ok"))
        assert f"{metric}0.0" in fetch(port, "/metrics")[1]
        assert operator.alive, operator.failure
    finally:
        operator.stop()


def test_a_leader_for_which_kopf_found_no_frayjobs_ends(
    proxy: FaultyProxy,
    proxied: Path,
    hands: Hands,
    settings_for: SettingsFor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_group(call: Call) -> Fault | None:
        gone = call.path.rstrip("/").endswith("/apis/fray.dev/v1alpha1")
        return Fault(Harm.ANSWER, 404, "NotFound") if gone else None

    proxy.rule = without_group
    operator = OperatorThread(proxied, settings_for(hands.namespace)).start()
    try:
        operator.join()
        assert isinstance(operator.failure, UnwatchedKindError)
        assert "kopf doesn't watch frayjobs.fray.dev" in str(operator.failure)
    finally:
        operator.stop()
