"""CartPole, its policy, and how a policy learns: pure functions, alike on every machine.

A cart on a track balances a pole. The equations are those of Barto, Sutton and Anderson, "Neuronlike
adaptive elements that can solve difficult learning control problems", 1983, as Gymnasium's CartPole-v1
integrates them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARAMETERS", "Settings", "build_weights", "choose_level", "improve", "perturb", "run_episode"]

Weights = NDArray[np.float64]

GRAVITY = 9.8
CART, POLE = 1.0, 0.1
"""Masses in kilograms."""
HALF_LENGTH = 0.5
FORCE = 10.0
STEP_SECONDS = 0.02
MOST_POSITION, MOST_ANGLE = 2.4, math.radians(12)

HIDDEN = 2048
PARAMETERS = HIDDEN * 4 + HIDDEN
"""80 KiB of weights: more than travels within a call, so that they go through the object stores."""
LEVELS = (100, 200, 500)
"""Steps of an episode at most: the curriculum."""


@dataclass(frozen=True)
class Settings:
    """How much is learned: in each of `rounds`, two episodes for each pair of opposite perturbations."""

    rounds: int = 15
    pairs: int = 12
    spread: float = 0.1
    rate: float = 0.3

    @property
    def episodes(self) -> int:
        """Episodes of a round."""
        return 2 * self.pairs


def build_weights() -> Weights:
    """Return the weights that learning begins with."""
    return np.random.default_rng(0).normal(size=PARAMETERS) * 0.1


def perturb(weights: Weights, number: int, episode: int, settings: Settings) -> Weights:
    """Return the weights that an episode of round `number` tries; episodes 2k and 2k+1 try opposite ones."""
    noise = np.random.default_rng((number, episode // 2)).normal(size=PARAMETERS)
    return weights + settings.spread * noise * (1 if episode % 2 == 0 else -1)


def run_episode(weights: Weights, seed: int, most_steps: int) -> int:
    """Return for how many steps the pole stood."""
    first, second = weights[: HIDDEN * 4].reshape(4, HIDDEN), weights[HIDDEN * 4 :]
    position, speed, angle, turning = np.random.default_rng(seed).uniform(-0.05, 0.05, 4).tolist()
    mass, moment = CART + POLE, POLE * HALF_LENGTH
    for step in range(most_steps):
        hidden = np.maximum(np.array((position, speed, 10 * angle, turning)) @ first, 0.0)
        force = FORCE if hidden @ second > 0 else -FORCE
        sine, cosine = math.sin(angle), math.cos(angle)
        push = (force + moment * turning * turning * sine) / mass
        swing = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4 / 3 - POLE * cosine * cosine / mass))
        position += STEP_SECONDS * speed
        speed += STEP_SECONDS * (push - moment * swing * cosine / mass)
        angle += STEP_SECONDS * turning
        turning += STEP_SECONDS * swing
        if abs(position) > MOST_POSITION or abs(angle) > MOST_ANGLE:
            return step + 1
    return most_steps


def improve(weights: Weights, number: int, rewards: Mapping[int, int], settings: Settings) -> Weights:
    """Return better weights, from the rewards of all episodes of a round (an evolution strategy).

    Salimans and others, "Evolution strategies as a scalable alternative to reinforcement learning", 2017.
    """
    # In their order, so that the outcome doesn't depend on which came first, not even by a rounding.
    spread = float(np.std([rewards[episode] for episode in range(settings.episodes)])) or 1.0
    step = np.zeros(PARAMETERS)
    for episode in range(0, settings.episodes, 2):
        noise = (perturb(weights, number, episode, settings) - weights) / settings.spread
        step += (rewards[episode] - rewards[episode + 1]) / spread * noise
    return weights + settings.rate * step / settings.episodes


def choose_level(level: int, mean_reward: float) -> int:
    """Return the level of the next round: a higher one, once most episodes last long enough."""
    return min(level + 1, len(LEVELS) - 1) if mean_reward > 0.7 * LEVELS[level] else level
