"""A cluster for actors, of which the test is a job's process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.job import JobContext, create_job_ctx, named_actors
from fray.runtime.api.client import ApiAccess
from tests.actors.cluster import Cluster
from tests.actors.objects_api import ObjectsApi, serving
from tests.pool.transport.certificates import write_key


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def cluster(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    api = ObjectsApi()
    job = {"kind": "FrayJob", "metadata": {"name": "train"}, "spec": {"environment": {"image": "train:1"}}}
    api.answer("POST", "/apis/fray.dev/v1alpha1/namespaces/ml/frayjobs", job)
    (tmp_path / "token").write_text("token")
    with serving(api) as url:
        access = ApiAccess(url, "ml", tmp_path / "token")
        monkeypatch.setattr(ApiAccess, "in_pod", lambda _: access)
        named_actors._pod_reach.cache_clear()
        made = Cluster(api, url, key, tmp_path)
        for name, value in made.environ().items():
            monkeypatch.setenv(name, value)
        try:
            yield made
        finally:
            made.close()
            for engine in named_actors._engines.values():
                engine.client.close()
            named_actors._engines.clear()
            named_actors._pod_reach.cache_clear()


@pytest.fixture
def context() -> Iterator[JobContext]:
    with create_job_ctx("threadpool", max_workers=4) as made:
        yield made
