"""Schemas of the parts of a pod that a FrayJob passes on unread: `podTemplate` and `valueFrom`.

They are written out because a schema without field names would let typing errors through, and because
the API server's CEL can't compare objects of unknown fields: two with as many but other keys count as
equal, so an immutable field could be changed. Fields whose own schema is only "anything" are compared
exactly. What the fields mean is core/v1; how they are merged into the pod is `fray.plan.overlay`.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["ENV_VALUE_FROM", "POD_SPEC_FIELDS", "POD_TEMPLATE"]

POD_SPEC_FIELDS: Final = (
    "activeDeadlineSeconds",
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "imagePullSecrets",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "os",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "readinessGates",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "securityContext",
    "serviceAccountName",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
)
"""Fields of core/v1 PodSpec that an overlay may hold, of any content.

Two more are declared in `POD_TEMPLATE` only to be refused with a reason (`fray.wire.rules`).
"""

# A null in the overlay removes a field, so it must survive the API server's pruning.
_ANYTHING: Final[dict[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
_STRING: Final[dict[str, Any]] = {"type": "string", "maxLength": 253}


def _described(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _string_map(*, value_length: int, description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": value_length, "nullable": True},
    }


def _reference(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "required": ["name", "key"],
        "properties": {
            "name": _described({"type": "string", "minLength": 1, "maxLength": 253}, "Name of the object."),
            "key": _described({"type": "string", "minLength": 1, "maxLength": 253}, "Key in its data."),
            "optional": {"type": "boolean", "description": "Whether the pod starts without it."},
        },
    }


POD_TEMPLATE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "metadata": {
            "type": "object",
            "description": "Labels and annotations to add to the pods.",
            "properties": {
                "labels": _string_map(value_length=63, description="Labels to add; null removes one."),
                "annotations": _string_map(
                    value_length=16384, description="Annotations to add; null removes one."
                ),
            },
        },
        "spec": {
            "type": "object",
            "description": "Fields of a PodSpec to merge over the one that Fray builds; null removes one.",
            "properties": {
                **{
                    field: _described(_ANYTHING, f"PodSpec.{field}, as in core/v1.")
                    for field in POD_SPEC_FIELDS
                },
                "hostname": _described(_STRING, "Not allowed: set by Fray."),
                "restartPolicy": _described(_STRING, "Never, or unset."),
                "subdomain": _described(_STRING, "Not allowed: set by Fray."),
            },
        },
    },
}
"""`podTemplate`: an overlay on the pods' template."""

ENV_VALUE_FROM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "secretKeyRef": _reference("A key of a Secret in the job's namespace."),
        "configMapKeyRef": _reference("A key of a ConfigMap in the job's namespace."),
        "fieldRef": {
            "type": "object",
            "description": "A field of the pod.",
            "required": ["fieldPath"],
            "properties": {
                "apiVersion": _described(_STRING, "Version of the pod's schema; v1 when unset."),
                "fieldPath": _described(_STRING, "Path of the field, such as metadata.name."),
            },
        },
        "resourceFieldRef": {
            "type": "object",
            "description": "A resource request or limit of a container.",
            "required": ["resource"],
            "properties": {
                "containerName": _described(_STRING, "Name of the container; this one when unset."),
                "resource": _described(_STRING, "Resource, such as limits.memory."),
                "divisor": {
                    "x-kubernetes-int-or-string": True,
                    "maxLength": 32,
                    "description": "Unit of the value, such as 1Mi; 1 when unset.",
                },
            },
        },
    },
}
"""`valueFrom` of an environment variable. Exactly one of its fields is set (`fray.wire.rules`)."""
