"""The API server and Python judge every manifest alike: same verdict, same fields, same texts of rules."""

from __future__ import annotations

from typing import Any

import pytest

from fray.errors import InvalidJobError
from fray.wire.frayactor import FRAYACTOR
from fray.wire.model import CustomKind
from fray.wire.schema import FRAYJOB
from fray.wire.validation import validate_object
from tests.integration.frayjobs import FrayJobs, causes_of
from tests.manifests.corpus import (
    BadManifest,
    GoodManifest,
    bad_actors,
    bad_manifests,
    good_actors,
    good_manifests,
)


def name_case(case: BadManifest | GoodManifest) -> str:
    return f"{kind_of(case).short_name}-{case.name}"


def kind_of(case: BadManifest | GoodManifest) -> CustomKind[Any]:
    """An object of the wrong kind was meant as a job."""
    return FRAYACTOR if case.manifest.get("kind") == FRAYACTOR.kind else FRAYJOB


@pytest.fixture(params=(*bad_manifests(), *bad_actors()), ids=name_case)
def bad(request: pytest.FixtureRequest) -> BadManifest:
    case: BadManifest = request.param
    return case


@pytest.fixture(params=(*good_manifests(), *good_actors()), ids=name_case)
def good(request: pytest.FixtureRequest) -> GoodManifest:
    case: GoodManifest = request.param
    return case


def test_a_bad_manifest_is_refused_alike(bad: BadManifest, frayjobs: FrayJobs) -> None:
    response = frayjobs.create(bad.manifest, kind_of(bad))
    with pytest.raises(InvalidJobError) as error:
        validate_object(bad.manifest, kind_of(bad))
    in_python = error.value.problems

    if bad.refusals[0].kind in ("unknown", "map"):
        # Strict decoding comes before all else, and speaks of paths only.
        (refusal,) = bad.refusals
        assert response.status == 400, response.body
        end = '"' if refusal.kind == "unknown" else "."
        assert f'unknown field "{refusal.path}{end}' in response.body["message"]
        assert [problem.path for problem in in_python] == [refusal.path]
        return
    assert response.status == 422, response.body
    causes = causes_of(response)
    assert {cause.path for cause in causes} == {problem.path for problem in in_python}
    for problem in in_python:
        if any(r.kind == "rule" and r.path == problem.path for r in bad.refusals):
            texts = [cause.message for cause in causes if cause.path == problem.path]
            assert any(text.endswith(f": {problem.message}") for text in texts), (texts, problem)


def test_a_good_manifest_is_taken_alike(good: GoodManifest, frayjobs: FrayJobs) -> None:
    in_python = validate_object(good.manifest, kind_of(good))
    stored = frayjobs.created(good.manifest, kind_of(good))
    assert validate_object(stored, kind_of(good)).spec == in_python.spec
