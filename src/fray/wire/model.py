"""The base of all models on the wire, the scalar types they share, and what a CRD is made of: a `CustomKind`.

Reading is tolerant: unknown fields are ignored, since a stored object may be newer than its reader.
Strict checking of what a user wrote is `fray.wire.validation`. Field docstrings become the descriptions of
the CRD (`kubectl explain`), in `fray.wire.schema`. Rules between fields stand in `fray.wire.rules`, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Generic, ParamSpec, Self, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from fray.vocabulary import GROUP, VERSION

__all__ = [
    "OBJECT_NAME_PATTERN",
    "CustomKind",
    "LabelValue",
    "LabelledName",
    "ObjectName",
    "Quantity",
    "Sha256",
    "WireModel",
    "build_unjudged",
    "keyed_by",
    "prune_default",
]

Quantity: TypeAlias = Annotated[
    int | Annotated[str, Field(max_length=32)],
    Field(description="A Kubernetes quantity such as 500m, 8 or 32Gi."),
]
LabelValue: TypeAlias = Annotated[
    str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
]
"""The value of a label, a taint or a node selector."""
OBJECT_NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
ObjectName: TypeAlias = Annotated[str, Field(max_length=253, pattern=OBJECT_NAME_PATTERN)]
"""The name of another Kubernetes object (DNS-1123 subdomain)."""
LabelledName: TypeAlias = Annotated[str, Field(max_length=63, pattern=OBJECT_NAME_PATTERN)]
"""The name of another object that stands in the value of a label, as the queue of Kueue does."""
Sha256: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]


class WireModel(BaseModel):
    """A frozen part of a custom resource; camelCase on the wire, snake_case in Python."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        strict=True,
        extra="ignore",
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return the same object: it is frozen. Pydantic copies defaults at each reading."""
        return self

    @classmethod
    def from_manifest(cls, manifest: dict[str, Any]) -> Self:
        """Read what the API server stored; unknown fields are ignored, types are exact."""
        return cls.model_validate(manifest)

    def to_manifest(self) -> dict[str, Any]:
        """Return the JSON form with camelCase keys, without fields that were never set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


Model = TypeVar("Model", bound=WireModel)
P = ParamSpec("P")


def keyed_by(field: str, *, most: int | None = None) -> Any:
    """Return what makes a list a map in the API server's eyes: each value of `field` stands in it once."""
    extra: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [field]}
    return Field(max_length=most, json_schema_extra=extra)


def build_unjudged(
    model: Callable[P, Model],
    *args: P.args,  # noqa: ARG001 - a model takes keywords only
    **fields: P.kwargs,
) -> Model:
    """Return an object for `fray.wire.validation.check_job`, which names all that is wrong with it.

    The model itself would raise for the first part that is, and show its value. What is None or empty
    stays unset.
    """
    given: dict[str, Any] = {name: part for name, part in fields.items() if not _is_empty(part)}
    built: Model = cast("type[Any]", model).model_construct(**given)
    return built


def _is_empty(part: object) -> bool:
    return not part.model_fields_set if isinstance(part, WireModel) else part in (None, [], {})


def prune_default(value: Any) -> Any:
    """Return what the API server fills in for a default as JSON; None for nothing.

    What is empty stays out of stored objects: it says nothing, and all readers know it.
    """
    if isinstance(value, dict):
        value = {key: kept for key, item in value.items() if (kept := prune_default(item)) is not None}
    return None if value in ([], {}) else value


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
