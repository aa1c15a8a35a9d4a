"""A custom resource as the API server knows it: what `fray.wire.schema` makes its CRD of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fray.vocabulary import GROUP, VERSION
from fray.wire.model import WireModel

__all__ = ["CustomKind"]

Model = TypeVar("Model", bound=WireModel)


@dataclass(frozen=True, eq=False)
class CustomKind(Generic[Model]):
    """A kind's names, its model, and how it is printed. The model has `spec` and `status`."""

    kind: str
    plural: str
    short_name: str
    model: type[Model]
    columns: Sequence[Mapping[str, Any]] = ()
    """What `kubectl get` prints: `additionalPrinterColumns`."""
    scale: Mapping[str, str] | None = None
    """Its scale subresource, if it has one."""
    group: str = GROUP
    version: str = VERSION
