"""Jobs as handles: submit a request, keep the handle, ask it.

    client = current_client()
    jobs = [client.submit(request) for request in requests]
    wait_all(jobs)

A client launches on a `Cluster` and a handle asks one; nothing is launched, waited for or read here, so what
`fray.cluster` promises of a backend holds of its handles. Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fray.offered_names import HOMES, find_offered, list_offered

if TYPE_CHECKING:
    from fray.client.client import *  # noqa: F403 - its `__all__` is the list
    from fray.client.errors import *  # noqa: F403
    from fray.client.handle import *  # noqa: F403

_HOMES = tuple(home for home in HOMES if home.startswith(f"{__name__}."))


if not TYPE_CHECKING:  # else mypy would find no misspelt name

    def __getattr__(name: str) -> Any:
        value = find_offered(__name__, name, _HOMES)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return list_offered(_HOMES)
