"""A job's process knows its place in the gang from its environment alone."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Iterator

import pytest

from fray.errors import SurroundingsError
from fray.runtime.identity import Identity, IdentityError, _of_process, current_identity

ENVIRON = {
    "FRAY_JOB_NAME": "digits",
    "FRAY_ATTEMPT": "2",
    "FRAY_SLICE": "1",
    "FRAY_NUM_SLICES": "3",
    "FRAY_HOST": "2",
    "FRAY_HOSTS_PER_SLICE": "4",
    "FRAY_COORDINATOR_ADDRESS": "digits-1-slice-0-0.digits-1:8476",
}


@pytest.fixture
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment outside any job, and an identity that hasn't been read yet."""
    for variable in [name for name in os.environ if name.startswith("FRAY_")]:
        monkeypatch.delenv(variable)
    _of_process.cache_clear()
    yield monkeypatch
    _of_process.cache_clear()


def test_a_process_knows_its_place_in_the_gang() -> None:
    identity = Identity.from_env(ENVIRON)
    assert identity == Identity(
        job="digits",
        attempt=2,
        slice=1,
        num_slices=3,
        host=2,
        hosts_per_slice=4,
        coordinator="digits-1-slice-0-0.digits-1:8476",
    )
    assert (identity.rank, identity.world_size, identity.is_leader) == (6, 12, False)


def test_ranks_number_the_gang_densely_slice_by_slice_with_one_leader() -> None:
    gang = [
        Identity.from_env(ENVIRON | {"FRAY_SLICE": str(index), "FRAY_HOST": str(host)})
        for index in range(3)
        for host in range(4)
    ]
    assert [identity.rank for identity in gang] == list(range(12))
    assert [identity.is_leader for identity in gang] == [True] + [False] * 11


def test_an_identity_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Identity.from_env(ENVIRON).slice = 0  # type: ignore[misc]


@pytest.mark.parametrize("variable", sorted(ENVIRON))
def test_a_missing_variable_is_named_with_what_to_do(variable: str) -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != variable}
    with pytest.raises(IdentityError, match=f"^environment variable {variable} is not set\n") as caught:
        Identity.from_env(environ)
    assert caught.value.variable == variable
    assert "fray run" in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("FRAY_JOB_NAME", "", "is empty"),
        ("FRAY_ATTEMPT", "0", "is 0; the smallest legal value is 1"),
        ("FRAY_ATTEMPT", "two", "is 'two', not a whole number"),
        ("FRAY_SLICE", "-1", "is '-1', not a whole number"),
        ("FRAY_SLICE", "3", "is 3, but must be below FRAY_NUM_SLICES, which is 3"),
        ("FRAY_NUM_SLICES", "0", "is 0; the smallest legal value is 1"),
        ("FRAY_HOST", "4", "is 4, but must be below FRAY_HOSTS_PER_SLICE, which is 4"),
        ("FRAY_HOST", " 1", "is ' 1', not a whole number"),
        ("FRAY_HOST", "1_0", "is '1_0', not a whole number"),
        ("FRAY_HOST", "٣", "is '٣', not a whole number"),
        ("FRAY_HOSTS_PER_SLICE", "", "is empty"),
        ("FRAY_HOSTS_PER_SLICE", "9" * 5000, "is '9+', not a whole number"),
        ("FRAY_COORDINATOR_ADDRESS", "localhost", "is 'localhost', not host:port"),
        ("FRAY_COORDINATOR_ADDRESS", ":8476", "is ':8476', not host:port"),
        ("FRAY_COORDINATOR_ADDRESS", "localhost:", "is 'localhost:', not host:port"),
        ("FRAY_COORDINATOR_ADDRESS", "localhost:0", "is 'localhost:0', not host:port"),
        ("FRAY_COORDINATOR_ADDRESS", "localhost:65536", "is 'localhost:65536', not host:port"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_wrong(variable: str, value: str, problem: str) -> None:
    with pytest.raises(IdentityError, match=f"^environment variable {variable} {problem}\n") as caught:
        Identity.from_env(ENVIRON | {variable: value})
    assert caught.value.variable == variable


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:65535", "localhost:8476"])
def test_every_kind_of_address_is_taken_as_it_is(address: str) -> None:
    assert Identity.from_env(ENVIRON | {"FRAY_COORDINATOR_ADDRESS": address}).coordinator == address


def test_the_error_is_about_the_surroundings_and_survives_pickling() -> None:
    error = IdentityError("FRAY_HOST", "is not set")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, IdentityError)
    assert isinstance(copy, SurroundingsError)
    assert (copy.variable, copy.problem, str(copy)) == (error.variable, error.problem, str(error))


def test_outside_any_job_a_process_is_a_gang_of_one(no_job: pytest.MonkeyPatch) -> None:
    no_job.setenv("FRAY_STATE_DIR", "elsewhere")  # a setting of the client is no sign of a job
    identity = current_identity()
    assert (identity.job, identity.attempt, identity.coordinator) == ("", 1, None)
    assert (identity.rank, identity.world_size, identity.is_leader) == (0, 1, True)


def test_inside_a_job_the_environment_is_read_once(no_job: pytest.MonkeyPatch) -> None:
    for variable, value in ENVIRON.items():
        no_job.setenv(variable, value)
    identity = current_identity()
    assert identity == Identity.from_env(ENVIRON)
    no_job.setenv("FRAY_HOST", "0")
    assert current_identity() is identity


def test_half_an_environment_is_an_error_and_no_gang_of_one(no_job: pytest.MonkeyPatch) -> None:
    no_job.setenv("FRAY_SLICE", "1")
    with pytest.raises(IdentityError, match="FRAY_NUM_SLICES is not set"):
        current_identity()
