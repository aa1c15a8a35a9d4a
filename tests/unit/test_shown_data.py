"""What is shown of data classes, in logs and tracebacks: no bytes, no arguments, no variables, no token."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import fray
import fray_operator
from fray.cluster.manifest import JobManifest
from fray.errors import InvalidOptionError
from fray.job.calls import Call as TaskCall
from fray.job.options import ActorOptions, TaskOptions
from fray.payload.callables import Call, Payload
from fray.payload.chunks import SecretPart
from fray.payload.outcome import EncodedOutcome, Outcome
from fray.payload.stamp import Stamp
from fray.runtime.pool.transport.keys import TransportKey
from fray.types import (
    BinaryEntrypoint,
    CallableEntrypoint,
    Entrypoint,
    EnvironmentConfig,
    JobRequest,
    create_environment,
)
from fray.wire.frayjob import FrayJob

BYTES = re.compile(r"\b(bytes|bytearray|memoryview)\b")
NAMES = re.compile(r"token|secret|password|credential|private_key")
WHOLE = {"args", "kwargs", "env", "env_vars", "environment", "body", "data", "secret_variables"}
HARMLESS = {
    ("JobManifest", "secret_name"): "the name of a Secret",
    ("SecretPart", "secret_name"): "the name of a Secret",
    ("PayloadLimits", "secrets"): "a number of bytes",
    ("WorkspaceLimits", "secrets"): "a number of bytes",
    ("Explained", "secrets"): "names of Secrets",
    ("Preview", "secrets"): "names of Secrets",
    ("ApiAccess", "token_file"): "a path",
    ("HostConfig", "token"): "the pool's name",
    ("HostConfig", "private_key"): "a path",
}


def data_classes() -> Iterator[type[Any]]:
    for package in (fray, fray_operator):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__"):
                continue
            module = importlib.import_module(found.name)
            for each in vars(module).values():
                if (
                    isinstance(each, type)
                    and each.__module__ == found.name
                    and dataclasses.is_dataclass(each)
                ):
                    yield each


def shown_by_itself(kind: type[Any]) -> bool:
    """Whether the class says itself what is shown; then there is an example of it below."""
    return not kind.__dataclass_params__.repr and kind.__repr__ is not object.__repr__


def test_no_generated_repr_shows_data_or_secrets() -> None:
    found = list(data_classes())
    assert {Payload, TransportKey} <= set(found), "the walk reaches them"
    told = [
        f"{kind.__module__}.{kind.__name__}.{field.name}: hide it with field(repr=False)"
        for kind in found
        if not shown_by_itself(kind)
        for field in dataclasses.fields(kind)
        if field.repr and (kind.__name__, field.name) not in HARMLESS
        if BYTES.search(str(field.type)) or NAMES.search(field.name) or field.name in WHOLE
    ]
    assert not told


def call(*_args: object, **_kwargs: object) -> None: ...


PARTIAL = functools.partial(call, "s3cret")
BINARY = ["train", "--db=postgres://me:s3cret@db"]
JOB = FrayJob.model_validate(
    {"metadata": {"name": "x"}, "spec": {"entrypoint": {"command": ["true"]}, "resources": {}}}
)
EXAMPLES = [
    BinaryEntrypoint(BINARY[0], BINARY[1:]),
    CallableEntrypoint(call, ["s3cret"], {"key": "s3cret"}),
    CallableEntrypoint(PARTIAL),
    Entrypoint.from_callable(PARTIAL, ["s3cret"], {"key": "s3cret"}),
    Entrypoint.from_command(BINARY),
    JobRequest("train", PARTIAL),
    JobRequest("train", call, environment=create_environment(env_vars={"A": "s3cret"})),
    JobRequest("train", "train.main", entrypoint_args=BINARY[1:]),
    EnvironmentConfig(
        workspace=".",
        env_vars={"A": "s3cret"},
        pip_packages=["git+https://s3cret@host/x"],
        setup=["curl -H 's3cret'"],
    ),
    JobManifest(job=JOB, secret_name="x-env", secret_variables={"A": "s3cret"}),
    Payload(b"s3cret", "00", Stamp.here(), "main"),
    SecretPart("x", "payload-000", b"s3cret"),
    Call(PARTIAL, ("s3cret",), {"a": "s3cret"}, {"b": "s3cret"}),
    TaskCall(PARTIAL, ("s3cret",), {"a": "s3cret"}),
    EncodedOutcome(b"s3cret"),
    Outcome(value="s3cret"),
    TransportKey(b"s3cret" * 5 + b"..", None, None),
    TaskOptions(env={"A": "s3cret"}),
    ActorOptions(env={"A": "s3cret"}),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_nothing_secret_is_shown(example: object) -> None:
    for shown in (repr(example), str(example), f"{[example]}"):
        assert "s3cret" not in shown
        assert type(example).__name__ in shown


def test_what_helps_is_still_shown() -> None:
    request = JobRequest("train", call, max_retries_failure=3)
    assert repr(request).startswith("JobRequest(name='train', entrypoint=Entrypoint.from_callable(call), ")
    assert "max_retries_failure=3" in repr(request)
    assert "'--db=postgres://***@db'" in repr(Entrypoint.from_command(BINARY))
    assert repr(CallableEntrypoint(call)) == "CallableEntrypoint(call)"


@pytest.mark.parametrize("value", [b"s3cret", "s3\0cret", ["s3cret"]])
def test_a_variable_that_is_refused_is_not_shown(value: Any) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        TaskOptions(env={"A": value})
    assert "cret" not in str(caught.value)
