"""Every rule fires on something in the corpus of bad manifests, and on nothing in that of good ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest

from fray.accelerators import generations, lookup_tpu
from fray.errors import AcceleratorShapeError, UnknownAcceleratorError
from fray.wire.accelerator_rules import TPU_CHIPS_PER_HOST, TPU_NAMED_TOPOLOGY, TPU_SIZE_TOPOLOGY, TPU_TYPE
from fray.wire.frayactor import FrayActor
from fray.wire.frayjob import FrayJob
from fray.wire.model import WireModel
from fray.wire.pod import Tpu
from fray.wire.rule import Rule, cel_string
from fray.wire.rules import RULES, UPDATE_RULES, Target
from tests.manifests.corpus import bad_actors, bad_manifests, good_actors, good_manifests

ALL_RULES = [(target, rule) for target, rules in RULES.items() for rule in rules]


def values(model: WireModel) -> Iterator[tuple[Target, Any]]:
    """Everything in a job that a rule can be about."""
    yield (type(model), ""), model
    for field in type(model).model_fields:
        value = getattr(model, field)
        if value is None:
            continue
        yield (type(model), field), value
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, WireModel):
                yield from values(item)


@cache
def judged(target: Target, *, legal: bool) -> list[Any]:
    """The values for a rule in the jobs and actors of the corpus."""
    models = {FrayJob: (good_manifests(), bad_manifests()), FrayActor: (good_actors(), bad_actors())}
    objects: list[WireModel] = []
    for model, (good, bad) in models.items():
        broken = [case for case in bad if case.refusals[0].kind == "rule"]
        objects += [model.from_manifest(case.manifest) for case in (good if legal else broken)]
    return [value for each in objects for found, value in values(each) if found == target]


def label(target: Target, rule: Rule[Any]) -> str:
    model, field = target
    return "-".join(part for part in (model.__name__, field, rule.field, rule.message[:20]) if part)


@pytest.mark.parametrize(("target", "rule"), ALL_RULES, ids=[label(*pair) for pair in ALL_RULES])
def test_a_rule_is_broken_by_bad_manifests_and_kept_by_good_ones(target: Target, rule: Rule[Any]) -> None:
    broken_by = [value for value in judged(target, legal=False) if not rule.holds(value)]
    assert broken_by
    assert all(rule.explain(value) for value in broken_by)
    kept_by = judged(target, legal=True)
    assert kept_by
    assert all(rule.holds(value) for value in kept_by)


def test_texts_are_short_enough_for_the_api_server() -> None:
    for _, rule in ALL_RULES:
        assert "\n" not in rule.message
        assert len(rule.message) < 2048
        assert bool(rule.arguments) == bool(rule.arguments_cel)
        assert not (rule.arguments is None and "%" in rule.message)


def test_a_text_with_a_line_break_gives_way_to_the_fallback() -> None:
    assert TPU_TYPE.explain("v5p-17").startswith('unknown TPU type "v5p-17"; legal: v5p-8, ')
    assert TPU_TYPE.explain("v5p\n17") == TPU_TYPE.fallback


def test_what_a_user_writes_never_reaches_a_text_unbounded_without_fallback() -> None:
    for (model, field), rule in ALL_RULES:
        if "%s" in rule.message:
            assert rule.fallback, (model, field)


def test_every_field_of_the_spec_has_an_update_rule_but_those_that_may_change() -> None:
    (model, blamed) = next(
        (target[0], {rule.field for rule in rules})
        for target, rules in UPDATE_RULES.items()
        if target[0].__name__ == "FrayJobSpec" and not target[1]
    )
    aliases = {field.alias for field in model.model_fields.values()}
    change = {"suspend", "stopped", "ttlSecondsAfterFinished", "retries", "timeouts"}
    assert aliases - blamed == {*change, "workers"}, "workers have rules of their own"
    assert (model, "stopped") in UPDATE_RULES


def test_literals_of_cel_are_quoted() -> None:
    assert cel_string("a") == "'a'"
    assert cel_string("can't") == '"can\'t"'
    assert cel_string("can't \"") == "'can\\'t \"'"
    with pytest.raises(ValueError, match="backslashes"):
        cel_string("a\\b")


# --- TPU rules say what lookup_tpu says ------------------------------------------------------------------


def is_legal(tpu: Tpu) -> bool:
    rules = (TPU_NAMED_TOPOLOGY, TPU_SIZE_TOPOLOGY, TPU_CHIPS_PER_HOST)
    return TPU_TYPE.holds(tpu.type) and all(rule.holds(tpu) for rule in rules)


def has_machines(tpu: Tpu) -> bool:
    try:
        lookup_tpu(tpu.type, topology=tpu.topology, chips_per_host=tpu.chips_per_host)
    except (UnknownAcceleratorError, AcceleratorShapeError):
        return False
    return True


NAMES = [f"{s}-{n}" for g in generations() for s in g.spellings for n in (*g.sizes[:6], *g.topologies[:6])]
NAMES += ["v5p-12288", "v5p-16x16x24", "tpu7x-16x24x24", "v4-16x16x16", "v5p-10", "v5p", "v9-8", "v5p-8x4x4"]
TOPOLOGIES = [
    None,
    "1x1",
    "1x1x1",
    "2x2",
    "2x4",
    "4x2",
    "4x4",
    "2x2x1",
    "2x2x2",
    "2x2x4",
    "4x4x4",
    "4x4x8",
    "x",
]


@pytest.mark.parametrize("chips", [None, 1, 2, 4, 8])
def test_tpu_rules_hold_where_machines_exist(chips: int | None) -> None:
    for name, topology in product(NAMES, TOPOLOGIES):
        tpu = Tpu(type=name, topology=topology, chips_per_host=chips)
        assert is_legal(tpu) == has_machines(tpu), tpu
