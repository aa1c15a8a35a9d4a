"""Cluster specs: the one line that says where jobs run, such as `k8s?namespace=ml&queue=tpu`.

A backend's name and, behind a question mark, keys as in the query of a URL: `%26` is an ampersand within
a value, and a plus sign is a plus sign. Reading a spec opens nothing; which variable holds it, and what
a cluster does with it, is decided elsewhere.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, TypeAlias
from urllib.parse import quote, unquote

from fray.credentials import holds_credentials, redacted
from fray.errors import ClusterSpecError, ClusterUnavailableError
from fray.wire.model import OBJECT_NAME_PATTERN

__all__ = [
    "ClusterSpec",
    "IrisSpec",
    "KubernetesSpec",
    "LocalSpec",
    "RaySpec",
    "check_available",
    "format_cluster_spec",
    "parse_cluster_spec",
]


@dataclass(frozen=True, kw_only=True)
class _Spec:
    """What all specs do: they are checked, and are their own text."""

    withdrawn: ClassVar[tuple[str, ...]] = ()
    """Keys that can be read and not used."""

    def __post_init__(self) -> None:
        _check_values(self)

    def __str__(self) -> str:
        return format_cluster_spec(self)


@dataclass(frozen=True, kw_only=True)
class LocalSpec(_Spec):
    """Jobs on this machine.

    Attributes:
        use_isolated_env: Whether each job gets a virtual environment of its own.
        mode: A process for each host, or, for debugging, a thread of this process.
    """

    use_isolated_env: bool = False
    mode: Literal["process", "thread"] = "process"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.use_isolated_env and self.mode == "thread":
            remedy = "Leave one of them out: threads share the environment of this process."
            problem = "use_isolated_env and mode=thread exclude each other"
            raise _error(format_cluster_spec(self), problem, remedy)


@dataclass(frozen=True, kw_only=True)
class KubernetesSpec(_Spec):
    """Jobs on a Kubernetes cluster, with what they get where a request doesn't say.

    Attributes:
        namespace: Where FrayJobs are made; the current one when None.
        context: Context of the kubeconfig; the current one, or the pod's own account, when None.
        image: Container image; the operator's default when None.
        queue: Kueue LocalQueue.
        service_account: ServiceAccount of the job's pods.
        staging: fsspec URL of a directory for what is too large for a Secret. It holds no credentials,
            since all jobs get it: file systems find those of the account that a process runs as
            (workload identity), or in variables, which pods get from a Secret
            (`EnvironmentConfig.secrets`).

    Raises:
        ClusterSpecError: A value is none that a cluster can have, or `staging` holds credentials; the error
            doesn't.
    """

    namespace: str | None = None
    context: str | None = None
    image: str | None = None
    queue: str | None = None
    service_account: str | None = None
    staging: str | None = None


@dataclass(frozen=True, kw_only=True)
class RaySpec(_Spec):
    """Jobs on a Ray cluster.

    Attributes:
        address: Of Ray's dashboard (`http://head:8265`) or of its head (`head:6379`); the Ray of RAY_ADDRESS,
            or of this machine, when None.
        namespace, cluster: Of an earlier API; a spec with one can be read and not used.
    """

    withdrawn: ClassVar[tuple[str, ...]] = ("namespace", "cluster")

    address: str | None = None
    namespace: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, kw_only=True)
class IrisSpec(_Spec):
    """Jobs on an Iris cluster, which this version of Fray can name and not use."""

    controller: str | None = None


ClusterSpec: TypeAlias = LocalSpec | KubernetesSpec | RaySpec | IrisSpec


def parse_cluster_spec(text: str) -> ClusterSpec:
    """Return what a cluster spec says.

    Args:
        text: `local`, `local?mode=thread`, `k8s?namespace=ml&context=gke`, and so on. Keys without a
            value count as not given.

    Raises:
        ClusterSpecError: An unknown backend or key, a key given twice, or a value that it can't have;
            the error names what is legal and what may have been meant.
    """
    if not isinstance(text, str):
        raise _error(str(text), f"it is of type {type(text).__name__}, not text", _BACKENDS_REMEDY)
    name, _, query = text.strip().partition("?")
    kind = _BACKENDS.get(name)
    if kind is None:
        raise _error(text, f"there is no backend {name!r}", _advise_backend(name))
    legal = tuple(field.name for field in fields(kind))
    values: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        raw_key, _, raw_value = part.partition("=")
        key = unquote(raw_key)
        if key not in legal:
            offered = tuple(each for each in legal if each not in kind.withdrawn)
            remedy = _advise(key, offered, f"Legal keys of {name}: {', '.join(offered)}.")
            raise _error(text, f"{name} has no key {key!r}", remedy)
        if key in values:
            raise _error(text, f"{key!r} is given twice", f"Give {key!r} once.")
        values[key] = _read_value(text, key, unquote(raw_value, errors="surrogateescape"))
    given = {key: value for key, value in values.items() if value is not None}
    return kind(**given)


def format_cluster_spec(spec: _Spec) -> str:
    """Return the shortest text that `parse_cluster_spec` reads as this spec."""
    (name,) = (name for name, kind in _BACKENDS.items() if kind is type(spec))
    parts = []
    for field in fields(spec):
        value = getattr(spec, field.name)
        if value == field.default:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        parts.append(f"{field.name}={quote(text, safe='/:@,;!$()*+~?=', errors='replace')}")
    return f"{name}?{'&'.join(parts)}" if parts else name


def check_available(spec: ClusterSpec) -> None:
    """Check that this version of Fray can run jobs on such a cluster.

    Raises:
        ClusterUnavailableError: It can't; the error says what to use instead.
    """
    if isinstance(spec, RaySpec) and any(getattr(spec, key) is not None for key in spec.withdrawn):
        reason = "jobs have no namespace on Ray, and a cluster is named by its address"
        raise ClusterUnavailableError("ray", reason, "Write ray?address=http://HEAD:8265, or ray alone.")
    if isinstance(spec, IrisSpec):
        raise ClusterUnavailableError("iris", _NO_IRIS, _INSTEAD_OF_IRIS)


def _check_values(spec: _Spec) -> None:
    """Check a spec that a program made, by the rules of those that are read."""
    for field in fields(spec):
        value = getattr(spec, field.name)
        if value == field.default:
            continue
        if not isinstance(value, type(field.default) if field.default is not None else str):
            problem = f"{field.name} is of type {type(value).__name__}"
            raise _error(format_cluster_spec(spec), problem, f"Legal: {_READERS[field.name][1]}.")
        if isinstance(value, str):
            _check_text(format_cluster_spec(spec), field.name, value)
        if isinstance(value, str) and holds_credentials(value):
            remedy = (
                f"Leave it out of {field.name}: specs are shown, and passed to jobs. {_CREDENTIALS_REMEDY}"
            )
            raise _error(format_cluster_spec(spec), f"{field.name} holds a password or a token", remedy)


def _error(spec: str, problem: str, remedy: str) -> ClusterSpecError:
    """Return the error without credentials, which may stand where nobody looked for them."""
    return ClusterSpecError(_shown(spec), _shown(problem), remedy)


def _shown(text: str) -> str:
    decoded = unquote(text, errors="replace")
    return redacted(decoded) if holds_credentials(decoded) else text


_BACKENDS: Final[Mapping[str, type[LocalSpec | KubernetesSpec | RaySpec | IrisSpec]]] = MappingProxyType(
    {"local": LocalSpec, "k8s": KubernetesSpec, "ray": RaySpec, "iris": IrisSpec}
)
_MEANT: Final = {"kubernetes": "k8s", "kube": "k8s", "gke": "k8s", "laptop": "local", "localhost": "local"}
_BACKENDS_REMEDY: Final = "Legal backends: local, k8s, ray; for example k8s?namespace=ml."
"""Those that can be used; `check_available` says of the others why they can't."""
_NO_IRIS: Final = "launching jobs on an Iris cluster doesn't exist yet, and no package adds it"
_INSTEAD_OF_IRIS: Final = (
    "Use FRAY_CLUSTER_SPEC=local on this machine, or k8s?namespace=... on a cluster with Fray."
)
_CREDENTIALS_REMEDY: Final = (
    "Processes use those of their service account, or variables; pods get these with "
    "create_environment(secrets=['NAME-OF-A-SECRET'])."
)

# --- values ---------------------------------------------------------------------------------------------


def _read_value(spec: str, key: str, text: str) -> Any:
    return _check_text(spec, key, text) if text else None


def _check_text(spec: str, key: str, text: str) -> Any:
    reader, legal = _READERS[key]
    value = reader(text)
    if value is None or not text.isprintable():
        remedy = _advise(text, ("process", "thread") if key == "mode" else (), f"Legal: {legal}.")
        raise _error(spec, f"{key} is {text!r}", remedy)
    return value


def _read_boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _choice(*legal: str) -> Callable[[str], str | None]:
    return lambda text: text if text in legal else None


def _matching(pattern: str, *, longest: int) -> Callable[[str], str | None]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: text if compiled.fullmatch(text) and len(text) <= longest else None


_OBJECT_NAME: Final = _matching(OBJECT_NAME_PATTERN, longest=253)
_LABELLED_NAME: Final = _matching(OBJECT_NAME_PATTERN, longest=63)
_NAMESPACE: Final = _matching(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", longest=63)
_ANY_TEXT: Final = _matching(r"(?s:.+)", longest=1024)
_NO_SPACES: Final = _matching(r"\S+", longest=1024)
_URL: Final = _matching(r"[A-Za-z][A-Za-z0-9+.-]*://\S+", longest=2048)

_READERS: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = MappingProxyType(
    {
        "use_isolated_env": (_read_boolean, "true, false"),
        "mode": (_choice("process", "thread"), "process, thread"),
        "namespace": (_NAMESPACE, "up to 63 lower case letters, digits and '-', such as ml"),
        "context": (_ANY_TEXT, "a context of the kubeconfig (`kubectl config get-contexts`)"),
        "image": (_NO_SPACES, "a container image, such as python:3.12-slim"),
        "queue": (_LABELLED_NAME, "a LocalQueue's name, such as tpu-queue"),
        "service_account": (_OBJECT_NAME, "a ServiceAccount's name, such as fray-job"),
        "staging": (_URL, "an fsspec URL, such as gs://bucket/fray"),
        "cluster": (_ANY_TEXT, "a cluster's name"),
        "address": (_NO_SPACES, "an address, such as http://head:8265 or head:6379"),
        "controller": (_URL, "a URL, such as http://host:10000"),
    }
)
"""How each key's text becomes its value (None: it can't), and what is legal. Keys of one name are alike."""


# --- advice ---------------------------------------------------------------------------------------------


def _advise_backend(name: str) -> str:
    simple = name.lower().partition(":")[0]
    if simple == "iris":
        return _INSTEAD_OF_IRIS
    offered = tuple(each for each in _BACKENDS if each != "iris")
    return _advise(_MEANT.get(simple, simple), offered, _BACKENDS_REMEDY)


def _advise(written: str, legal: tuple[str, ...], remedy: str) -> str:
    simple = written.lower().replace("-", "_")
    near = difflib.get_close_matches(simple[:40], legal, n=1, cutoff=0.6)
    return f"Did you mean {near[0]!r}? {remedy}" if near else remedy
