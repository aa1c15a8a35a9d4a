"""An earlier API's client of Iris clusters, which aren't served: its names tell what to write instead."""

from __future__ import annotations

from fray.offered_names import offer_names

offer_names(__name__)
