"""Environments: documented defaults, what wins, and that no value of a variable is shown."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from fray.types import EnvironmentConfig, create_environment
from fray.types.environment import is_confidential


@pytest.fixture(autouse=True)
def own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf-s3cret")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


def test_the_defaults() -> None:
    environment = create_environment()
    assert environment.workspace == str(Path.cwd())
    assert environment.docker_image is None
    assert environment.env_vars == {
        "HF_DATASETS_TRUST_REMOTE_CODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_TOKEN": "hf-s3cret",
    }
    assert environment.pip_packages == environment.extras == environment.setup == environment.secrets == []
    assert EnvironmentConfig.create() == environment


def test_a_users_values_win_and_none_takes_a_variable_out() -> None:
    environment = create_environment(
        docker_image="python:3.12",
        env_vars={"TOKENIZERS_PARALLELISM": "true", "HF_TOKEN": None, "OWN": "x", "GONE": None},
    )
    assert environment.env_vars == {
        "HF_DATASETS_TRUST_REMOTE_CODE": "1",
        "TOKENIZERS_PARALLELISM": "true",
        "OWN": "x",
    }
    assert environment.workspace is None


def test_keys_of_this_process_are_copied_where_it_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "w")
    monkeypatch.setenv("HF_TOKEN", "")
    variables = create_environment().env_vars
    assert variables["WANDB_API_KEY"] == "w"
    assert "HF_TOKEN" not in variables


def test_both_names_of_extras() -> None:
    environment = create_environment(extra_dependency_groups=["tpu"])
    assert environment.extras == environment.extra_dependency_groups == ["tpu"]
    assert create_environment(extras=["tpu"]) == environment


def test_no_value_of_a_variable_is_shown() -> None:
    environment = create_environment(
        docker_image="python:3.12",
        pip_packages=["git+https://me:s3cret@example.com/x.git", "git+https://s3cret@example.com/y.git"],
        env_vars={"WANDB_API_KEY": "s3cret", "INNOCENT": "s3cret"},
        setup=["login --token s3cret"],
        secrets=["wandb"],
    )
    assert "s3cret" not in repr(environment)
    assert "example.com/x.git" in repr(environment)
    assert "INNOCENT" in repr(environment)
    assert "wandb" in repr(environment)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("WANDB_API_KEY", "x", True),
        ("HF_TOKEN", "x", True),
        ("db.password", "x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("DATABASE_URL", "postgres://me:pw@db/x", True),
        ("DATABASE_URL", "postgres://:pw@db/x", True),
        ("CREDS", "x", True),
        ("HEADER", "Authorization: Bearer 0123456789", True),
        ("GIT", "ghp_0123456789abcdefghij", True),
        ("MODEL", "sk-0123456789abcdef", True),
        ("SESSION", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", True),
        ("ACCOUNT", '{"type": "service_account", "private_key": "x"}', True),
        ("IDENTITY", "-----BEGIN OPENSSH PRIVATE KEY-----\nx", True),
        ("STYLE", "basic", False),
        ("TASK", "task-0123456789abcdef", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("MAX_TOKENS", "2048", False),
        ("MONKEY", "x", False),
        ("DATABASE_URL", "postgres://db:5432/x?user=a@b", False),
        ("REPOSITORY", "ssh://git@example.com/x", False),
    ],
)
def test_what_is_confidential(name: str, value: str, expected: bool) -> None:
    assert is_confidential(name, value) is expected


def test_it_can_be_copied_and_pickled(tmp_path: Path) -> None:
    environment = create_environment(tmp_path, setup=["make"], cache_volume="packages")
    assert environment.workspace == str(tmp_path)
    assert pickle.loads(pickle.dumps(environment)) == environment == replace(environment)
    assert replace(environment, extras=["tpu"]).extras == ["tpu"]


def test_what_was_given_is_copied() -> None:
    variables = {"A": "1"}
    environment = EnvironmentConfig(workspace=".", env_vars=variables)
    variables["A"] = "2"
    assert environment.env_vars == {"A": "1"}
