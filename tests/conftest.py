"""What holds for all tests: no example of a property has a time limit, since machines are slow at times."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("fray", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fray")
