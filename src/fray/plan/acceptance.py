"""What a legal FrayJob may ask for that isn't built yet: answered by `Accepted=False`, never ignored.

Each entry names its field and what to do meanwhile. Entries disappear as features arrive.
"""

from __future__ import annotations

from fray.plan.observation import Waiting
from fray.vocabulary import Reason
from fray.wire.frayjob import FrayJobSpec

__all__ = ["derive_unsupported"]


def derive_unsupported(spec: FrayJobSpec) -> Waiting | None:
    """Return why the operator can't run this job, or None."""
    if spec.workers is not None and spec.workers.replicas > 0:
        message = "worker pods don't exist yet: set spec.workers.replicas to 0"
        return Waiting(Reason.WORKERS_NOT_SUPPORTED, message)
    environment = spec.environment
    fields = {
        "pipPackages": environment.pip_packages,
        "extras": environment.extras,
        "workspace": environment.workspace,
    }
    asked = [f"spec.environment.{name}" for name, value in fields.items() if value]
    if asked:
        message = f"{', '.join(asked)} can't be installed yet: put packages and code into the image"
        return Waiting(Reason.FEATURE_NOT_SUPPORTED, message)
    return None
