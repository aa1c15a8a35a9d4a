"""What refs and handles of this process become when they are pickled.

Unpickled in the same process, they come back as themselves as long as they are alive. A value doesn't
travel with its ref, so in another process they fail with an error.
"""

from __future__ import annotations

import weakref
from typing import Any

from fray.errors import ActorNotFoundError, ObjectLostError

__all__ = ["reduce_handle", "reduce_ref"]

_pickled: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def reduce_ref(identity: str, ref: object) -> tuple[Any, ...]:
    """Return what pickle makes a ref again from."""
    _pickled[identity] = ref
    return _revive_ref, (identity,)


def reduce_handle(identity: str, handle: object) -> tuple[Any, ...]:
    """Return what pickle makes a handle again from."""
    _pickled[identity] = handle
    return _revive_handle, (identity,)


def _revive_ref(identity: str) -> Any:
    ref = _pickled.get(identity)
    if ref is None:
        reason = "its ref was pickled by another process, or nobody here holds it any more"
        raise ObjectLostError(identity, reason)
    return ref


def _revive_handle(identity: str) -> Any:
    handle = _pickled.get(identity)
    if handle is None:
        raise ActorNotFoundError(identity)
    return handle
