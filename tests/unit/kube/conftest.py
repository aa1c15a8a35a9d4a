"""How requests are sent: by a pool of connections, or each by a connection of its own."""

from __future__ import annotations

from functools import partial

import pytest

from fray.kube.client import KubernetesApi
from tests.unit.kube import scripted_server


@pytest.fixture(params=[False, True], ids=["pool", "brief"])
def brief(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether each request has a connection of its own; a test that uses this holds for both."""
    found: bool = request.param
    monkeypatch.setattr(scripted_server, "KubernetesApi", partial(KubernetesApi, brief=found))
    return found
