"""The environment that local processes inherit: the user's own, without traces of an outer job.

What a job itself sets is `fray.plan.environment`'s; it is put over this.
"""

from __future__ import annotations

from collections.abc import Mapping

from fray import vocabulary
from fray.plan.environment import PROTECTED_PREFIX

__all__ = ["derive_base_environment", "select_own"]

TUNING = frozenset(
    {
        vocabulary.ENV_JAX_PLATFORMS,
        vocabulary.ENV_LIBTPU_INIT_ARGS,
        vocabulary.ENV_NCCL_DEBUG,
        vocabulary.ENV_NCCL_SOCKET_IFNAME,
    }
)
"""Variables that describe the machine, not a place in a gang."""
PLACE_IN_A_GANG = frozenset(
    value
    for name, value in vars(vocabulary).items()
    if name.startswith("ENV_") and name != "ENV_PORT_PREFIX" and value not in TUNING
)
DEFAULTS = {"PYTHONUNBUFFERED": "1"}
"""As images for such jobs have it: Python holds back what it prints into a pipe."""


def derive_base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `fray run` that its processes inherit.

    FRAY_* and what tells a process its place in a gang are left out: a `fray run` within a job would
    pass on the outer job's rank where the inner one sets none.
    """
    return {**DEFAULTS, **select_own(environ)}


def select_own(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that neither are Fray's nor tell a process its place in a gang."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(PROTECTED_PREFIX) and name not in PLACE_IN_A_GANG
    }
