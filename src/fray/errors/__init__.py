"""Every error Fray raises on purpose, grouped by who must act; a module a group.

Callers catch a group (`RequestError`: fix what you asked for; `SurroundingsError`: fix the machine or
the cluster; `JobError`: look at the job's own code; `TaskError`: a task or an actor gave no value) or one
class, and read its fields instead of parsing text. Each error is a dataclass: it says what happened, what
to do next, holds its data and survives pickling. Nothing here may import another part of Fray.
"""

# ruff: noqa: F403 - the `__all__` of each module is the list

from __future__ import annotations

from fray.errors import (
    base,
    cluster,
    job,
    nodepools,
    payload,
    pool,
    queue,
    request,
    surroundings,
    transport,
    workspace,
)
from fray.errors.base import *
from fray.errors.cluster import *
from fray.errors.job import *
from fray.errors.nodepools import *
from fray.errors.payload import *
from fray.errors.pool import *
from fray.errors.queue import *
from fray.errors.request import *
from fray.errors.surroundings import *
from fray.errors.transport import *
from fray.errors.workspace import *

__all__: list[str] = []
__all__ += base.__all__
__all__ += cluster.__all__
__all__ += job.__all__
__all__ += nodepools.__all__
__all__ += payload.__all__
__all__ += pool.__all__
__all__ += queue.__all__
__all__ += request.__all__
__all__ += surroundings.__all__
__all__ += transport.__all__
__all__ += workspace.__all__
