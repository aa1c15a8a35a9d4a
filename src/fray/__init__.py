"""Fray runs the same Python jobs on a laptop and on a Kubernetes cluster.

Every public name stands here and is imported when it is first used (PEP 562), so that `import fray`
costs next to nothing. Nothing is defined here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fray.errors import (
        AcceleratorShapeError,
        FieldError,
        FrayError,
        InvalidJobError,
        JobError,
        JobFailedError,
        JobFileError,
        JobNotFoundError,
        JobNotRunningError,
        JobRunningError,
        JobStillRunningError,
        JobStoppedError,
        LogsNotFoundError,
        OpenFilesError,
        OutputError,
        PortsExhaustedError,
        RequestError,
        SettingError,
        StateDirectoryError,
        SurroundingsError,
        UnknownAcceleratorError,
        UnsupportedFeatureError,
    )
    from fray.runtime.identity import Identity, IdentityError, current_identity

    __version__: str

__all__ = [
    "AcceleratorShapeError",
    "FieldError",
    "FrayError",
    "Identity",
    "IdentityError",
    "InvalidJobError",
    "JobError",
    "JobFailedError",
    "JobFileError",
    "JobNotFoundError",
    "JobNotRunningError",
    "JobRunningError",
    "JobStillRunningError",
    "JobStoppedError",
    "LogsNotFoundError",
    "OpenFilesError",
    "OutputError",
    "PortsExhaustedError",
    "RequestError",
    "SettingError",
    "StateDirectoryError",
    "SurroundingsError",
    "UnknownAcceleratorError",
    "UnsupportedFeatureError",
    "__version__",
    "current_identity",
]

_IDENTITY = frozenset({"Identity", "IdentityError", "current_identity"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("fray")
    else:
        module = "fray.runtime.identity" if name in _IDENTITY else "fray.errors"
        value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
