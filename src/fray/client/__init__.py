"""Jobs as handles: submit a request, keep the handle, ask it.

    client = current_client()
    jobs = [client.submit(request) for request in requests]
    wait_all(jobs)

A client launches on a `Cluster` and a handle asks one; nothing is launched, waited for or read here, so what
`fray.cluster` promises of a backend holds of its handles. Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fray.offered_names import HOMES, offer_names

if TYPE_CHECKING:
    from fray.client.client import *  # noqa: F403 - its `__all__` is the list
    from fray.client.errors import *  # noqa: F403
    from fray.client.handle import *  # noqa: F403

offer_names(__name__, tuple(home for home in HOMES if home.startswith(f"{__name__}.")))
