"""Names of actors that the API server would refuse: the creator learns of it before anything is made."""

from __future__ import annotations

import pytest

from fray.errors import InvalidJobError, InvalidOptionError
from fray.job import JobContext, host_actor
from fray.kube.resources import FRAYACTORS
from fray.wire.frayactor import FRAYACTOR
from fray.wire.validation import validate_object
from tests.actors import programs
from tests.actors.cluster import Cluster


def refuses(cluster: Cluster, context: JobContext, name: str) -> None:
    told = rf"name of an actor is '.*' \({len(name)} characters\)\n.*legal: 1 to 253 characters"
    for create in (
        lambda: context.create_actor(programs.Counter, name=name),
        lambda: context.create_actor_group(programs.Counter, name=name, count=2),
        lambda: host_actor(programs.Counter, name=name),
    ):
        with pytest.raises(InvalidOptionError, match=told):
            create()
    assert cluster.api.all(FRAYACTORS) == []


@pytest.mark.parametrize("character", ["\0", "\n", "\x7f", "\ud800"])
def test_a_name_has_no_control_character(cluster: Cluster, context: JobContext, character: str) -> None:
    refuses(cluster, context, f"counter{character}")


def test_a_group_has_as_many_members_as_the_schema_allows(cluster: Cluster, context: JobContext) -> None:
    with pytest.raises(InvalidOptionError, match=r"count is 257\n.*legal: 1 to 256 members"):
        context.create_actor_group(programs.Counter, name="crew", count=257)
    assert cluster.api.all(FRAYACTORS) == []
    context.create_actor_group(programs.Counter, name="crew", count=256)
    made = cluster.actor("crew")
    validate_object({**made, "metadata": {"name": made["metadata"]["name"]}}, FRAYACTOR)


def test_a_name_has_as_many_characters_as_the_schema_allows(cluster: Cluster, context: JobContext) -> None:
    longest = "ä" * 253
    refuses(cluster, context, f"{longest}ä")
    context.create_actor(programs.Counter, name=longest)
    made = cluster.actor(longest)
    written = {part: made[part] for part in ("apiVersion", "kind", "spec")}
    written["metadata"] = {"name": made["metadata"]["name"]}
    validate_object(written, FRAYACTOR)
    written["spec"] = {**made["spec"], "name": f"{longest}ä"}
    with pytest.raises(InvalidJobError, match=r"^FrayActor '.*' is invalid:\n  spec\.name: "):
        validate_object(written, FRAYACTOR)
