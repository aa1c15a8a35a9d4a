"""Why a part of a manifest is as it is: the material of `fray explain`.

A fact is made where the value is made, so that the explanation can't drift from the value. It must not
influence anything.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Fact"]


@dataclass(frozen=True)
class Fact:
    """One value of a manifest and the reason behind it.

    `subject` is what it is about (`env TPU_WORKER_ID`, `node selector cloud.google.com/gke-spot`),
    `value` its printed value, `because` one sentence, `source` where an outside fact can be read.
    """

    subject: str
    value: str
    because: str
    source: str = ""
