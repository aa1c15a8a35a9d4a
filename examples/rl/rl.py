"""Learning to balance a pole by jobs that share actors: `python rl.py`, on this machine or on a cluster.

A job trains. It launches three rollout jobs, and shares two kinds of actors with them: a curriculum that
hands out weights and episodes, and a group of two buffers that keep rewards. Each of these may be lost at
any moment.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from actors import BUFFERS, CURRICULUM, Curriculum, ReplayBuffer, call
from cartpole import LEVELS, Settings, build_weights, choose_level, improve, perturb, run_episode
from curve import draw_curve

from fray.client import current_client
from fray.job import ActorOptions, JobContext, get_default_job_ctx
from fray.types import Entrypoint, JobRequest, JobStatus, ResourceConfig, create_environment

BUFFER_COUNT = 2
ROLLOUTS = 3
EPISODES_AT_ONCE = 4
PAUSE_SECONDS = 0.1
SMALL = ResourceConfig(cpu=0.1, ram="256Mi", disk="100Mi")


@dataclass(frozen=True)
class Learned:
    """What came out: the mean reward of each round, how many episodes were counted, and the weights."""

    rewards: tuple[float, ...]
    episodes: int
    weights: tuple[float, ...]


def train(settings: Settings) -> Learned:
    """Train, with rollout jobs that end with this one."""
    ctx, client = get_default_job_ctx(), current_client()
    create_actors(ctx)
    request = Entrypoint.from_callable(roll_out, [settings])
    rollouts = [
        client.submit(JobRequest(f"rollout-{index}", request, SMALL, max_retries_failure=3))
        for index in range(ROLLOUTS)
    ]
    learned = learn(ctx, settings)
    while not all(JobStatus.finished(rollout.status()) for rollout in rollouts):
        call(ctx, CURRICULUM, "finish")  # which one that was started anew doesn't know
        time.sleep(PAUSE_SECONDS)
    return learned


def create_actors(ctx: JobContext) -> None:
    """Create the actors; a later attempt goes on with the curriculum, and replaces the buffers."""
    small = ActorOptions(resources={"CPU": 0.05})
    ctx.create_actor(Curriculum, name=CURRICULUM, get_if_exists=True, options=small)
    ctx.create_actor_group(ReplayBuffer, name=BUFFERS, count=BUFFER_COUNT, options=small)


def learn(ctx: JobContext, settings: Settings) -> Learned:
    """Learn for all rounds: publish weights, gather the rewards of all episodes, improve the weights."""
    weights, level = build_weights(), 0
    means: list[float] = []
    counted = 0
    for number in range(settings.rounds):
        rewards: dict[int, int] = {}
        published = False
        while len(rewards) < settings.episodes:
            left = [episode for episode in range(settings.episodes) if episode not in rewards]
            if not published:
                call(ctx, CURRICULUM, "publish", number, LEVELS[level], weights, left)
            for index in range(BUFFER_COUNT):
                rewards |= call(ctx, f"{BUFFERS}-{index}", "read", number)
            published = call(ctx, CURRICULUM, "note_done", number, list(rewards))
            time.sleep(PAUSE_SECONDS)
        counted += len(rewards)
        weights = improve(weights, number, rewards, settings)
        means.append(sum(rewards.values()) / len(rewards))
        print(f"round {number}: mean reward {means[-1]:.1f} of {LEVELS[level]}", flush=True)
        level = choose_level(level, means[-1])
    return Learned(tuple(means), counted, tuple(weights.tolist()))


def roll_out(settings: Settings, ctx: JobContext | None = None) -> None:
    """Run episodes until there are no more."""
    ctx = ctx or get_default_job_ctx()
    while (work := call(ctx, CURRICULUM, "next", EPISODES_AT_ONCE)) is not None:
        number, most_steps, weights, episodes = work
        for episode in episodes:
            tried = perturb(weights, number, episode, settings)
            reward = run_episode(tried, number, most_steps)
            call(ctx, f"{BUFFERS}-{episode % BUFFER_COUNT}", "add", number, {episode: reward})
        if not episodes:
            time.sleep(PAUSE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on the current cluster, print what was learned, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=Settings.rounds)
    parser.add_argument("--curve", type=Path, default=Path("rewards.svg"), help="where the picture goes")
    parsed = parser.parse_args(arguments)
    settings = Settings(rounds=parsed.rounds)
    request = JobRequest(
        "rl",
        Entrypoint.from_callable(train, [settings]),
        SMALL,
        # The folder travels with the job and the jobs that it launches, so that they find its modules.
        create_environment(workspace=Path(__file__).parent),
        max_retries_failure=1,
    )
    job = current_client().submit(request)
    learned = job.result()
    parsed.curve.write_text(draw_curve(learned.rewards), encoding="utf-8")
    print(f"{learned.episodes} episodes, mean reward {learned.rewards[0]:.1f} -> {learned.rewards[-1]:.1f}")


if __name__ == "__main__":
    main()
