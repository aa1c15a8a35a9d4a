"""What an engine can't do raises the error of its row in the table, and everything else is taken."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fray.errors import InvalidTypeError, UnschedulableError, UnsupportedFeatureError
from fray.job import ActorOptions, JobContext, TaskOptions
from fray.job.traits import Feature, Traits

USES: dict[Feature, Callable[[JobContext, Path], object]] = {
    Feature.TASK_ENV: lambda ctx, _: ctx.run(abs, 1, options=TaskOptions(env={"A": "1"})),
    Feature.RUNTIME_ENV: lambda ctx, _: ctx.run(
        abs, 1, options=TaskOptions(runtime_env={"env_vars": {"A": "1"}})
    ),
    Feature.MAX_CALLS: lambda ctx, _: ctx.run(abs, 1, options=TaskOptions(max_calls=1)),
    Feature.ACTOR_ENV: lambda ctx, _: ctx.create_actor(list, options=ActorOptions(env={"A": "1"})),
    Feature.ACTOR_RESOURCES: lambda ctx, _: ctx.create_actor(
        list, options=ActorOptions(resources={"of mine": 1})
    ),
    Feature.MAX_RESTARTS: lambda ctx, _: ctx.create_actor(list, options=ActorOptions(max_restarts=1)),
    Feature.MAX_TASK_RETRIES: lambda ctx, _: (
        ctx.create_actor(list).append.options(max_task_retries=1).remote(1)
    ),
    Feature.STATS: lambda ctx, _: ctx.stats(),
    Feature.TIMELINE: lambda ctx, folder: ctx.save_timeline(folder / "timeline.json"),
    Feature.METRICS: lambda ctx, _: ctx.metrics_address,
}


def test_what_makes_no_actor_is_refused_where_it_is_given(ctx: JobContext) -> None:
    for refused in (
        lambda: ctx.create_actor(5, name="five"),  # type: ignore[arg-type]
        lambda: ctx.create_actor_group(5, name="five", count=1),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidTypeError, match="can't be made by an object of int"):
            refused()


@pytest.mark.parametrize("feature", Feature)
def test_an_engine_refuses_what_its_table_says_and_nothing_else(
    ctx: JobContext, traits: Traits, feature: Feature, tmp_path: Path
) -> None:
    refusal = traits.refuses.get(feature)
    if refusal is None:
        with contextlib.suppress(UnschedulableError):  # what nobody has
            USES[feature](ctx, tmp_path)
    else:
        with pytest.raises(UnsupportedFeatureError, match=re.escape(refusal.reason)) as refused:
            USES[feature](ctx, tmp_path)
        assert refused.value.feature.startswith(feature)
