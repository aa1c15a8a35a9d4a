"""The example of reinforcement learning: it learns, and what is lost on the way changes nothing."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from fray.job import create_job_ctx
from fray.runtime.pool.objects.values import INLINE_LIMIT

EXAMPLE = Path(__file__).parents[3] / "examples" / "rl"


@pytest.fixture
def rl(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program, imported as its folder is on the path of a script; other tests see nothing of it."""
    monkeypatch.syspath_prepend(EXAMPLE)
    try:
        yield importlib.import_module("rl")
    finally:
        for name in ("rl", "actors", "cartpole", "curve"):
            sys.modules.pop(name, None)


def learn_alone(rl: ModuleType, settings: Any) -> tuple[list[float], Any]:
    """Learn without jobs and actors; return the mean rewards and the weights."""
    weights, level, means = rl.build_weights(), 0, []
    for number in range(settings.rounds):
        rewards = {
            episode: rl.run_episode(rl.perturb(weights, number, episode, settings), number, rl.LEVELS[level])
            for episode in range(settings.episodes)
        }
        weights = rl.improve(weights, number, rewards, settings)
        means.append(sum(rewards.values()) / len(rewards))
        level = rl.choose_level(level, means[-1])
    return means, weights


def test_a_policy_learns_to_balance_and_its_curve_is_drawn(rl: ModuleType) -> None:
    means, weights = learn_alone(rl, rl.Settings(rounds=10))
    assert means[0] < 50
    assert means[-1] > 300
    assert rl.run_episode(weights, seed=12345, most_steps=500) > 300
    picture = ET.fromstring(rl.draw_curve(means))
    (line,) = picture.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(line.attrib["points"].split()) == 10


def test_weights_are_more_than_travels_within_a_call(rl: ModuleType) -> None:
    assert rl.build_weights().nbytes > INLINE_LIMIT


def test_rollouts_and_a_curriculum_that_is_lost_give_the_same_as_one_process(rl: ModuleType) -> None:
    settings = rl.Settings(rounds=4, pairs=3)
    means, weights = learn_alone(rl, settings)
    with create_job_ctx("threadpool", max_workers=4) as ctx:
        rl.create_actors(ctx)
        rollouts = [threading.Thread(target=rl.roll_out, args=(settings, ctx)) for _ in range(3)]
        for rollout in rollouts:
            rollout.start()
        ctx.kill(ctx.get_actor(rl.CURRICULUM))
        ctx.create_actor(rl.Curriculum, name=rl.CURRICULUM)
        learned = rl.learn(ctx, settings)
        rl.call(ctx, rl.CURRICULUM, "finish")
        for rollout in rollouts:
            rollout.join()
    assert learned.episodes == 4 * 6
    assert list(learned.rewards) == means
    assert list(learned.weights) == weights.tolist()
