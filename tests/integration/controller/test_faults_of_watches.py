"""Watches that are cut, silenced or expired while a job lives: nothing that happens in between is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.faulty_proxy import Call, Fault, FaultyProxy, Harm
from fray_operator import source
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, condition, eventually
from tests.integration.controller.operator_thread import OperatorThread, run_operator

KINDS = ("frayjobs", "jobsets", "pods")
SILENCE_SECONDS = 1.0


@pytest.fixture
def operator(
    proxied: Path, hands: Hands, settings_for: SettingsFor, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OperatorThread]:
    """An operator behind the proxy that gives up on a silent watch soon."""
    monkeypatch.setattr(source, "WATCH_SILENCE_SECONDS", SILENCE_SECONDS)
    running = OperatorThread(
        proxied, settings_for(hands.namespace), watch_silence_seconds=SILENCE_SECONDS
    ).start()
    yield running
    running.stop()


# A watch that was open a moment ago may have ended by its own silence: each harm waits for one to be done to.


def silence(proxy: FaultyProxy, kind: str) -> None:
    eventually(lambda: proxy.silence_watches(kind))


def cut(proxy: FaultyProxy, kind: str) -> None:
    eventually(lambda: proxy.cut_watches(kind))


def expire(proxy: FaultyProxy, kind: str) -> None:
    eventually(lambda: proxy.expire_watches(kind))


def expire_twice(proxy: FaultyProxy, kind: str) -> None:
    """Expire the watch, then answer the next attempt to open one by 410 instead of an event."""
    refused: list[Call] = []

    def rule(call: Call) -> Fault | None:
        if call.what != f"WATCH {kind}" or refused:
            return None
        refused.append(call)
        return (
            Fault(Harm.ANSWER, 500, "InternalError")
            if kind == "frayjobs"
            else Fault(Harm.ANSWER, 410, "Gone")
        )

    proxy.rule = rule
    expire(proxy, kind)
    eventually(lambda: refused)


@pytest.mark.parametrize("harm", [silence, cut, expire, expire_twice], ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_missed_while_a_watch_is_broken(
    kind: str,
    harm: Callable[[FaultyProxy, str], None],
    proxy: FaultyProxy,
    hands: Hands,
    operator: OperatorThread,
) -> None:
    hands.submit("train")
    hands.submit("done")
    pods = [hands.run_all(hands.await_jobset(f"{name}-a1"))[0] for name in ("train", "done")]
    for name in ("train", "done"):
        hands.await_phase(name, "Running")
    harm(proxy, kind)
    hands.edit("train", stopped=True)
    hands.exit(pods[1], 0)
    hands.complete(hands.await_jobset("done-a1"))
    hands.submit("new")
    hands.await_phase("done", "Succeeded")
    hands.await_jobset("new-a1")
    hands.collect_until(lambda: hands.job("train")["status"]["phase"] == "Stopped")
    assert operator.alive, operator.failure


@pytest.mark.parametrize("running", [True, False], ids=["running", "starting"])
def test_a_job_whose_deletion_was_missed_is_not_started_again(
    running: bool, proxy: FaultyProxy, hands: Hands, operator: OperatorThread
) -> None:
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    if running:
        hands.run_all(jobset)
        hands.await_phase("train", "Running")
    eventually(lambda: hands.events_of("train"))
    # Of the next watches too, which begin every second and would tell it.
    with proxy.silenced("frayjobs"):
        asked = len(proxy.calls)
        hands.delete_job("train")
        hands.collect()  # its JobSet is gone, which the operator sees
        eventually(
            lambda: any("/frayjobs/train" in call.path for call in proxy.calls[asked:]),
            told=lambda: proxy.calls[asked:],
        )
    hands.submit("later")
    hands.await_jobset("later-a1")
    assert [jobset["metadata"]["name"] for jobset in hands.list(hands.jobsets)] == ["later-a1"]
    assert not [
        call for call in proxy.calls[asked:] if call.body.get("metadata", {}).get("name") == "train-a1"
    ]
    assert operator.alive


def test_children_of_a_job_whose_deletion_was_missed_end_with_it(
    proxy: FaultyProxy, proxied: Path, hands: Hands, settings_for: SettingsFor
) -> None:
    with run_operator(proxied, settings_for(hands.namespace)) as running:
        hands.submit("train", suspend=True)
        hands.await_phase("train", "Suspended")
        hands.submit("child", suspend=True, parent={"name": "train", "root": "train"})
        hands.await_phase("child", "Suspended")
        eventually(lambda: proxy.open_watches("frayjobs"))
        proxy.silence_watches("frayjobs")
        hands.delete_job("train")
        proxy.expire_watches("frayjobs")
        job = hands.await_phase("child", "Stopped")
        assert condition(job, "Stopped")["message"] == "its parent train was deleted"
        assert running.alive, running.failure


def test_objects_larger_than_a_read_are_followed(hands: Hands, operator: OperatorThread) -> None:
    env = [{"name": f"LARGE_{number}", "value": "x" * 100_000} for number in range(4)]
    hands.submit("train", environment={"env": env})
    jobset = hands.await_jobset("train-a1")
    (pod,) = hands.run_all(jobset)
    job = hands.await_phase("train", "Running")
    assert condition(job, "Accepted")["status"] == "True"
    hands.exit(pod, 0)
    hands.complete(jobset)
    hands.await_phase("train", "Succeeded")
    assert operator.alive


@pytest.mark.parametrize("kind", ["jobsets", "pods"])
def test_watches_that_are_answered_by_something_else_are_opened_again(
    kind: str, proxy: FaultyProxy, hands: Hands, operator: OperatorThread
) -> None:
    wrong: list[Call] = []

    def rule(call: Call) -> Fault | None:
        if call.what != f"WATCH {kind}" or len(wrong) == 3:
            return None
        wrong.append(call)
        return Fault(Harm.ANSWER, 200, "")

    proxy.rule = rule
    cut(proxy, kind)
    hands.submit("train")
    hands.run_all(hands.await_jobset("train-a1"))
    hands.await_phase("train", "Running")
    eventually(lambda: len(wrong) == 3)
    assert operator.alive, operator.failure
