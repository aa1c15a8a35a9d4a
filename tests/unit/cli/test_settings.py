"""Settings are read once from a mapping; what can't be meant is a typed error."""

from __future__ import annotations

from pathlib import Path

import pytest

from fray.errors import SettingError
from fray.settings import Settings

HOME = {"HOME": "/home/me"}


@pytest.mark.parametrize(
    ("environ", "state_dir"),
    [
        ({}, "/home/me/.local/state/fray"),
        ({"XDG_STATE_HOME": "/state"}, "/state/fray"),
        ({"XDG_STATE_HOME": "relative"}, "/home/me/.local/state/fray"),
        ({"XDG_STATE_HOME": ""}, "/home/me/.local/state/fray"),
        ({"FRAY_STATE_DIR": "/own", "XDG_STATE_HOME": "/state"}, "/own"),
        ({"FRAY_STATE_DIR": ""}, "/home/me/.local/state/fray"),
    ],
)
def test_the_state_directory_is_the_users_own_or_the_standard_one(
    environ: dict[str, str], state_dir: str
) -> None:
    assert Settings.from_env({**HOME, **environ}).state_dir == Path(state_dir)


def test_a_relative_state_directory_is_made_absolute() -> None:
    assert Settings.from_env({"FRAY_STATE_DIR": "state"}).state_dir == Path.cwd() / "state"


def test_without_home_the_setting_is_asked_for() -> None:
    with pytest.raises(SettingError, match="FRAY_STATE_DIR"):
        Settings.from_env({})


@pytest.mark.parametrize(("text", "seconds"), [("", 1.0), ("0", 0.0), ("2.5", 2.5), ("86400", 86400.0)])
def test_the_back_off_is_a_number_of_seconds(text: str, seconds: float) -> None:
    assert Settings.from_env({**HOME, "FRAY_BACKOFF_SECONDS": text}).backoff_seconds == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "86401", "1s"])
def test_a_back_off_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="FRAY_BACKOFF_SECONDS"):
        Settings.from_env({**HOME, "FRAY_BACKOFF_SECONDS": text})
