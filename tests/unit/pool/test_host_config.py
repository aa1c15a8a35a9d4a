"""What a nanny is told survives the way to it, and shows its secret to nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.runtime.pool.host_config import HostConfig

CONFIG = HostConfig(
    token="t",
    head="tcp:head:1",
    secret=bytes(range(32)),
    host=3,
    name="here",
    resources=(("CPU", 2.0), ("GPU", 1.0)),
    workers=2,
    store="/dev/shm/a",
    spill="/tmp/a",
    store_limit=100,
    certificate="/c.crt",
    private_key="/c.key",
    sys_path=("/a", ""),
    env=(("A", "b"),),
)


def test_it_survives_the_way() -> None:
    assert HostConfig.from_json(CONFIG.to_json()) == CONFIG
    assert CONFIG.key.certificate == Path("/c.crt")


def test_the_secret_is_not_shown() -> None:
    assert CONFIG.secret.hex() not in repr(CONFIG)
    assert str(CONFIG.secret) not in repr(CONFIG)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        HostConfig.from_json(text)
