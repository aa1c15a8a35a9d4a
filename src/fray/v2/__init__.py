"""The import path of an earlier API: what is below `fray` is here too, under the same objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fray
from fray.legacy.aliases import offer_below

offer_below(__name__)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(fray, name)


def __dir__() -> list[str]:
    return dir(fray)
