"""The import path of an earlier API: what is below `fray` is here too, under the same objects."""

from __future__ import annotations

from fray.legacy.aliases import offer_package

offer_package(__name__)
