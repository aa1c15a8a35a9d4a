"""The outcome of a callable goes to its client through the API server: a ConfigMap that its pod creates.

The pod's service account needs to create and get ConfigMaps, and nothing more. What the bytes mean is
in `fray.payload.outcome`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from fray.errors import OutcomeUploadError
from fray.kube.errors import AlreadyExistsError, ApiError
from fray.kube.resources import CONFIG_MAPS
from fray.runtime.api.client import ApiClient
from fray.vocabulary import (
    API_VERSION,
    FRAYJOB_KIND,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    OUTCOME_KEY,
)

__all__ = ["OutcomePlace", "upload_outcome"]


@dataclass(frozen=True)
class OutcomePlace:
    """The ConfigMap that an outcome goes into, and the FrayJob that owns it."""

    name: str
    job: str
    job_uid: str
    attempt: int

    def build_manifest(self, outcome: bytes) -> dict[str, Any]:
        """Return the ConfigMap with an outcome in it; it goes with its FrayJob."""
        labels = {
            LABEL_MANAGED_BY: MANAGED_BY,
            LABEL_JOB: self.job,
            LABEL_JOB_UID: self.job_uid,
            LABEL_ATTEMPT: str(self.attempt),
        }
        owner = {"apiVersion": API_VERSION, "kind": FRAYJOB_KIND, "name": self.job, "uid": self.job_uid}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "labels": labels, "ownerReferences": [owner]},
            "binaryData": {OUTCOME_KEY: base64.b64encode(outcome).decode()},
            "immutable": True,
        }


def upload_outcome(api: ApiClient, place: OutcomePlace, outcome: bytes) -> None:
    """Create the ConfigMap; it may be there already, if it is the same.

    Raises:
        OutcomeUploadError: the server refuses it, can't be reached, or has another one of that name.
    """
    manifest = place.build_manifest(outcome)
    try:
        try:
            api.create(CONFIG_MAPS, manifest, namespace=api.namespace, repeat=True)
        except AlreadyExistsError:
            # An earlier try whose answer was lost, or an earlier pod of the same rank.
            kept = api.get(CONFIG_MAPS, place.name, namespace=api.namespace)
            if kept.get("binaryData") != manifest["binaryData"]:
                raise OutcomeUploadError(place.name, "another outcome is there already") from None
    except ApiError as error:
        raise OutcomeUploadError(place.name, error.message) from error
