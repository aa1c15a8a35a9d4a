"""What a pod's variables say about the pool of its job, and where the head of that pool is.

In a job with worker pods the head runs in the pod of rank 0. Its address is asked of the API server, so that
no DNS is needed; on rank 0 itself it's a socket of the pod, or the loopback interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from socket import gethostbyname, gethostname
from typing import Final

from fray.errors import AddressError, AttemptOverError, HeadUnknownError, SettingError
from fray.kube.errors import NotFoundError
from fray.kube.resources import PODS
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.runtime.api.head_address import await_head, has_ended
from fray.runtime.container import spell_resources
from fray.runtime.identity import Identity
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.transport.addresses import Address
from fray.vocabulary import (
    ENV_ATTEMPT,
    ENV_JOB_UID,
    ENV_POD_NAME,
    ENV_POD_UID,
    ENV_POOL_HEAD,
    ENV_POOL_KEY,
    ENV_POOL_OBJECTS,
    ENV_POOL_SOCKET,
    ENV_SLICE,
    ENV_WORKERS_SHAPE,
)

__all__ = ["HeadPlace", "PodPool", "read_number", "read_objects_address", "read_offer"]

RANK_0: Final = "rank-0:"
"""Before the port, instead of an address."""


@dataclass(frozen=True)
class HeadPlace:
    """Where the head of a pool is; `pod` is the uid of its pod, empty where the API server wasn't asked."""

    address: Address
    pod: str = ""


@dataclass(frozen=True)
class PodPool:
    """The pool of this process's job.

    `head` is where it listens; None: on `port` of rank 0's pod. `key` is the directory of its key, `objects`
    where this process serves what it keeps. `access` is that to the API server; None: there is none. In the
    pod of rank 0, `socket` is where the head listens besides for its own pod; None: nowhere.
    """

    head: Address | None
    port: int
    key: Path
    objects: Address
    environ: Mapping[str, str] = field(repr=False)
    access: ApiAccess | None = None
    socket: Address | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> PodPool:
        """Return what `environ` says.

        Raises `SettingError` for a variable that is missing, `AddressError` for what is no address.
        """
        text = _read(environ, ENV_POOL_HEAD)
        in_rank_0 = text.startswith(RANK_0)
        # A port is what an address has, whatever its host.
        head = Address.parse(f"tcp:{text}" if in_rank_0 else text)
        if head.last:
            raise AddressError(text, "the head has one port")
        return cls(
            head=None if in_rank_0 else head,
            port=head.port,
            key=Path(_read(environ, ENV_POOL_KEY)),
            objects=read_objects_address(environ),
            environ=environ,
            access=ApiAccess.in_pod(environ) if in_rank_0 else None,
            socket=_read_socket(environ) if in_rank_0 else None,
        )

    @property
    def listen(self) -> Address:
        """Where the head of this pod listens."""
        return self.head or Address(host="::" if ":" in self.objects.host else "0.0.0.0", port=self.port)

    @property
    def is_rank_0(self) -> bool:
        """Whether this process is in the pod of the head, by its variables; workers have no rank."""
        return _is_rank_0(self.environ)

    def find_head(self, *, known: str = "", seconds: float) -> HeadPlace:
        """Return where the head is, once its pod has an address; `known` is the pod that it was in before.

        Raises `AttemptOverError` if that one has ended, `HeadUnknownError` if there is none after `seconds`
        or there is no API server to ask, and `fray.kube.errors.ApiError` where that one refuses.
        """
        if self.head is not None:
            return HeadPlace(self.head)
        if self.is_rank_0:
            return HeadPlace(Address(host="::1" if ":" in self.objects.host else "127.0.0.1", port=self.port))
        job_uid, attempt = _read(self.environ, ENV_JOB_UID), _read_attempt(self.environ)
        if self.access is None:
            problem = "this pod has no token for the API server"
            raise HeadUnknownError(job_uid, attempt, 0.0, problem)
        client = ApiClient(self.access)
        if known and has_ended(client, known, job_uid=job_uid, attempt=attempt):
            raise AttemptOverError("the pod of rank 0, in which its pool's head was, has ended")
        pod = await_head(client, job_uid=job_uid, attempt=attempt, seconds=seconds)
        return HeadPlace(Address(host=pod.address, port=self.port), pod.uid)

    def is_to_go(self) -> bool:
        """Return whether this pod is being deleted, or is gone; False where nothing says which one it is.

        Raises `fray.kube.errors.ApiError` where the API server doesn't tell.
        """
        name = self.environ.get(ENV_POD_NAME)
        if self.access is None or not name:
            return False
        try:
            pod = ApiClient(self.access).get(PODS, name, namespace=self.access.namespace)
        except NotFoundError:
            return True
        metadata = pod["metadata"]
        return metadata.get("uid") != self.environ.get(ENV_POD_UID) or "deletionTimestamp" in metadata


def read_objects_address(environ: Mapping[str, str]) -> Address:
    """Return where this process serves what it puts; raises `AddressError` for what is no address."""
    return Address.parse(environ.get(ENV_POOL_OBJECTS) or f"tcp:{gethostbyname(gethostname())}:0")


def read_offer(environ: Mapping[str, str]) -> Shape:
    """Return what one worker of the job offers, as its spec says; empty where it doesn't.

    Raises `SettingError` for what isn't `name=number,...`.
    """
    parts = (part.partition("=") for part in environ.get(ENV_WORKERS_SHAPE, "").split(",") if part)
    offered = {name: read_number(amount, ENV_WORKERS_SHAPE) for name, _, amount in parts}
    return tuple(sorted(spell_resources(offered).items()))


def read_number(text: str, variable: str) -> float:
    """Return a number of a variable, 0 or more; raises `SettingError` for any other text."""
    try:
        number = float(text)
    except ValueError as error:
        raise SettingError(variable, f"holds {text!r}, which is no number") from error
    if not 0 <= number < 2**63:
        raise SettingError(variable, f"holds {text!r}, which is out of range")
    return number


def _is_rank_0(environ: Mapping[str, str]) -> bool:
    return ENV_SLICE in environ and Identity.from_env(environ).rank == 0


def _read_socket(environ: Mapping[str, str]) -> Address | None:
    text = environ.get(ENV_POOL_SOCKET)
    return Address.parse(text) if text and _is_rank_0(environ) else None


def _read(environ: Mapping[str, str], variable: str) -> str:
    value = environ.get(variable)
    if not value:
        raise SettingError(variable, "is not set, as it is in each process of a job with a pool")
    return value


def _read_attempt(environ: Mapping[str, str]) -> int:
    value = _read(environ, ENV_ATTEMPT)
    if not (value.isascii() and value.isdigit()):
        raise SettingError(ENV_ATTEMPT, f"is {value!r}, not a number")
    return int(value)
