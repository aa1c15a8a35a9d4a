"""kopf finds out nothing about jobs, and keeps nothing of them: it only hands on what it was told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fray_operator.source import _build_settings


class Untouchable(Mapping[str, Any]):
    """An object that must not be looked at."""

    def __getitem__(self, key: str) -> Any:
        raise AssertionError(f"{key} was read")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("it was copied")

    def __len__(self) -> int:
        raise AssertionError("it was measured")


def test_nothing_of_a_job_is_copied_to_find_out_what_has_changed() -> None:
    persistence = _build_settings().persistence
    body: Any = Untouchable()
    assert persistence.diffbase_storage.fetch(body=body) is None
    essence = persistence.diffbase_storage.build(body=body, extra_fields=[])
    assert persistence.progress_storage.clear(essence=essence) == {}


def test_nothing_is_written_to_a_job_to_remember_it_by() -> None:
    persistence = _build_settings().persistence
    body: Any = Untouchable()
    patch: Any = {}
    persistence.diffbase_storage.store(body=body, patch=patch, essence={})
    persistence.progress_storage.store(body=body, patch=patch, key="any", record={})
    persistence.progress_storage.touch(body=body, patch=patch, value=None)
    persistence.progress_storage.purge(body=body, patch=patch, key="any")
    assert patch == {}
