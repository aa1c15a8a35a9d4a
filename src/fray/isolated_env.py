"""An earlier API's environments for a process, of which jobs have their own now: its name tells how."""

from __future__ import annotations

from fray.offered_names import offer_names

offer_names(__name__)
