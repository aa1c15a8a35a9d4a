"""The API server and Python judge every manifest alike: same verdict, same fields, same texts of rules."""

from __future__ import annotations

import pytest

from fray.errors import InvalidJobError
from fray.wire.validation import validate_manifest
from tests.integration.frayjobs import FrayJobs, causes_of
from tests.manifests.corpus import BadManifest, GoodManifest, bad_manifests, good_manifests


@pytest.fixture(params=bad_manifests(), ids=lambda case: case.name)
def bad(request: pytest.FixtureRequest) -> BadManifest:
    case: BadManifest = request.param
    return case


@pytest.fixture(params=good_manifests(), ids=lambda case: case.name)
def good(request: pytest.FixtureRequest) -> GoodManifest:
    case: GoodManifest = request.param
    return case


def test_a_bad_manifest_is_refused_alike(bad: BadManifest, frayjobs: FrayJobs) -> None:
    response = frayjobs.create(bad.manifest)
    with pytest.raises(InvalidJobError) as error:
        validate_manifest(bad.manifest)
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
    in_python = validate_manifest(good.manifest)
    stored = frayjobs.created(good.manifest)
    assert validate_manifest(stored).spec == in_python.spec
