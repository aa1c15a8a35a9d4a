"""What GKE says when it refuses or gives up an operation: why, when to try again, and what to do.

Pure. GKE says much in texts alone: a quota that is used up comes as PERMISSION_DENIED, a stock-out as an
operation that ends with an error. So the text is looked at first, and the code only where no text is known.
`tests/gke/refusals.py` has each text with its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from fray.errors import NodePoolError
from fray.plan.texts import clean_text

__all__ = ["ANSWERS", "IN_PROGRESS", "Answer", "Retry", "derive_error", "explain_answer"]

IN_PROGRESS: Final = "OperationInProgress"
"""Reason of the one answer that is no refusal: it is as if GKE were making the pools already."""
MOST_SAID: Final = 500
"""Characters of GKE's own words that are kept."""


class Retry(StrEnum):
    """When another try may help."""

    NEVER = "never"
    """Not before somebody changes something."""
    LATER = "later"
    """In minutes, each time more: capacity and quota come back."""
    SOON = "soon"
    """In seconds: another operation must end first, or a server was busy."""


@dataclass(frozen=True)
class Answer:
    """What an answer means: one sentence, and the next step."""

    reason: str
    retry: Retry
    sentence: str
    remedy: str


QUOTA_STEP: Final = (
    "Ask for more quota in the Google Cloud console (IAM & Admin, Quotas), or use another region, spot nodes "
    "or a reservation, which have quota of their own."
)
STOCKOUT_STEP: Final = "Try {zones}another zone, spot nodes, flex-start or a reservation."

ANSWERS: Final = {
    r"regional quota.*resource \"(?P<metric>[^\"]+)\".*requires '(?P<wanted>[^']+)'"
    r" and is short '(?P<short>[^']+)'": Answer(
        "QuotaExceeded",
        Retry.LATER,
        "the project's quota {metric} is short of {short}: {wanted} are needed",
        QUOTA_STEP,
    ),
    r"quota '(?P<metric>[^']+)' exceeded"
    r"(?:\.?\s+limit: (?P<limit>[\d.]+\d)(?: in region (?P<where>[-\w]+))?)?": Answer(
        "QuotaExceeded",
        Retry.LATER,
        "the project's quota {metric} is used up{limit}{where}",
        QUOTA_STEP,
    ),
    r"insufficient (?:regional )?quota|quota.{0,40}exceeded": Answer(
        "QuotaExceeded",
        Retry.LATER,
        "the project has no quota left for these nodes",
        QUOTA_STEP,
    ),
    r"reservations?\b.*"
    r"(?:do(?:es)? not have (?:enough|available|sufficient)|is too small|not enough)": Answer(
        "ReservationTooSmall",
        Retry.LATER,
        "the reservation has fewer free machines than the pool needs",
        "Look at it with `gcloud compute reservations describe`; enlarge it, or wait until others leave it.",
    ),
    r"reservations?\b.*(?:not found|does not exist|could not be found)": Answer(
        "ReservationNotFound",
        Retry.NEVER,
        "there is no such reservation for this machine type in the zone",
        "Compare its name, project and zone with `gcloud compute reservations list`; is it shared with you?",
    ),
    r"ZONE_RESOURCE_POOL_EXHAUSTED|GCE_STOCKOUT|does not have enough resources available"
    r"|is currently unavailable in the": Answer(
        "StockOut",
        Retry.LATER,
        "Google Cloud has no such machines free in the zone now",
        STOCKOUT_STEP,
    ),
    r"running incompatible operation (?P<operation>[-\w]+)"
    r"|operation (?P<other>operation-[-\w]+) is currently"
    r"|currently being created, deleted, updated or repaired": Answer(
        IN_PROGRESS,
        Retry.SOON,
        "another operation{operation}{other} runs on the cluster or the pool",
        "Wait for it; `gcloud container operations list` shows it.",
    ),
    r"(?:(?P<api>[A-Z][\w. ]{0,60}API) has not been used in project"
    r"|API.{0,80}\bis disabled|SERVICE_DISABLED)(?:.*apis/api/(?P<service>[\w.]+))?": Answer(
        "ApiDisabled",
        Retry.NEVER,
        "an API that is needed is off in the project{api}",
        "Enable it: `gcloud services enable {service}`.",
    ),
    r"iam\.serviceAccounts\.actAs"
    r"|does not have access to service account \"?(?P<account>[^\s\"]*[^\s\".])": Answer(
        "ServiceAccountDenied",
        Retry.NEVER,
        "the account may not use the nodes' service account{account}",
        "Grant it roles/iam.serviceAccountUser on that service account.",
    ),
    r"required ['\"](?P<right>compute\.[\w.]+)['\"] permission": Answer(
        "PermissionDenied",
        Retry.NEVER,
        "the account lacks the permission {right}",
        "Grant it roles/compute.instanceAdmin.v1, or a role with that permission.",
    ),
    r"required ['\"](?P<right>[\w.]+)['\"] permission|permission '(?P<other_right>[\w.]+)' denied": Answer(
        "PermissionDenied",
        Retry.NEVER,
        "the account lacks the permission {right}{other_right}",
        "Grant it roles/container.clusterAdmin, or a role with that permission.",
    ),
    r"auto_?upgrade must be (?:true|enabled|set)": Answer(
        "AutoUpgradeRequired",
        Retry.NEVER,
        "the cluster is in a release channel, which doesn't allow pools without auto-upgrade",
        "Leave auto-upgrade on; Fray's requests do.",
    ),
    r"autopilot clusters? do(?:es)? not (?:support|allow)": Answer(
        "AutopilotCluster",
        Retry.NEVER,
        "the cluster is an Autopilot cluster, which makes its nodes itself",
        "Start the job; nothing needs to be created.",
    ),
    r"(?:resource|workload|placement) policy.*(?:not found|does not exist|invalid)": Answer(
        "PolicyRefused",
        Retry.NEVER,
        "the workload policy isn't there, or doesn't fit the machine type",
        "Make it with the command that `fray pools plan` prints, in the cluster's region, or name another.",
    ),
    r"(?:tpu.?)?topology.*(?:invalid|not supported|not valid|unsupported|mutually exclusive)"
    r"|(?:invalid|unsupported).*topology": Answer(
        "TopologyRefused",
        Retry.NEVER,
        "the machine type doesn't come in that topology and number of nodes",
        "Compare with `fray accelerators`; `fray pools plan` prints what belongs together.",
    ),
    r"machine type.*(?:not (?:found|supported|available)|does not exist|unavailable|invalid)": Answer(
        "MachineTypeUnavailable",
        Retry.NEVER,
        "the zone has no such machine type",
        "Choose a zone that has it: `gcloud compute machine-types list --filter=name=MACHINE_TYPE`.",
    ),
    r"already exists": Answer(
        "AlreadyExists",
        Retry.NEVER,
        "there is a pool of this name already",
        "Use it: `fray pools list` shows it.",
    ),
}
"""By patterns: the first that is found counts, and its groups stand in the sentence and in the remedy."""

# What a code alone says, where no text is known.
CODES: Final = {
    "PERMISSION_DENIED": Answer(
        "PermissionDenied",
        Retry.NEVER,
        "the account may not do that",
        "Grant it roles/container.clusterAdmin on the project.",
    ),
    "UNAUTHENTICATED": Answer(
        "PermissionDenied",
        Retry.NEVER,
        "Google Cloud doesn't accept the credentials",
        "Log in anew: `gcloud auth application-default login`.",
    ),
    "NOT_FOUND": Answer(
        "NotFound",
        Retry.NEVER,
        "GKE doesn't know it",
        "Check project, location and name: `gcloud container clusters list`.",
    ),
    "RESOURCE_EXHAUSTED": Answer(
        "TooManyRequests",
        Retry.LATER,
        "GKE asks for fewer requests, or the quota is used up",
        "Wait; if it stays so, look at the project's quotas.",
    ),
    "INVALID_ARGUMENT": Answer(
        "Refused",
        Retry.NEVER,
        "GKE doesn't take the request",
        "Read GKE's words; `fray pools plan -f FILE` shows the request.",
    ),
    **dict.fromkeys(
        ("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "CANCELLED", "UNKNOWN"),
        Answer(
            "Unavailable",
            Retry.SOON,
            "GKE gave no proper answer",
            "Try again; https://status.cloud.google.com shows incidents.",
        ),
    ),
}
OTHER: Final = Answer(
    "Refused",
    Retry.LATER,
    "GKE refused it",
    "Read GKE's words; `gcloud container operations list` shows more.",
)
# Groups that get words of their own; empty where the text had none.
_PHRASES: Final = {
    "limit": " (limit {})",
    "where": " in {}",
    "operation": " {}",
    "other": " {}",
    "account": " {}",
    "api": ": {}",
}
_ABSENT: Final = {"service": "NAME.googleapis.com"}
"""What stands in the place of a group that the text hasn't got; nothing for all others."""
_ZONE: Final = re.compile(r"\b[a-z]+-[a-z]+\d+-[a-z]\b")
_ALTERNATIVES: Final = re.compile(
    r"zonesAvailable\W{1,8}([-\w, ]+)|request in the ([-\w, ]+?) zone", re.IGNORECASE
)


def explain_answer(said: str, *, code: str = "") -> Answer:
    """Return what GKE's words, or else its code (such as `PERMISSION_DENIED`), mean."""
    said = said[: 4 * MOST_SAID]
    for pattern, row in ANSWERS.items():
        found = re.search(pattern, said, re.IGNORECASE | re.DOTALL)
        if found is not None:
            words = {
                key: _PHRASES.get(key, "{}").format(value) if value else _ABSENT.get(key, "")
                for key, value in found.groupdict().items()
            }
            zones = find_zones(said)
            words["zones"] = f"{' or '.join(zones)}, which GKE says has some, or " if zones else ""
            return replace(row, sentence=row.sentence.format(**words), remedy=row.remedy.format(**words))
    return CODES.get(code, OTHER)


def find_zones(said: str) -> tuple[str, ...]:
    """Return the other zones that a stock-out names as having room."""
    listed = [" ".join(filter(None, found)) for found in _ALTERNATIVES.findall(said)]
    return tuple(dict.fromkeys(zone for part in listed for zone in _ZONE.findall(part)))


def derive_error(subject: str, said: str, *, code: str = "") -> NodePoolError:
    """Return the error for what GKE said about a pool or a cluster, with its words."""
    answer = explain_answer(said, code=code)
    kept = " ".join(clean_text(said).split())[:MOST_SAID]
    sentence = f"{answer.sentence} (GKE: {kept})" if kept else answer.sentence
    return NodePoolError(subject, answer.reason, answer.retry, sentence, answer.remedy, kept)
