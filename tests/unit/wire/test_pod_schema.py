"""The overlay's fields are those of core/v1, but for those with a reason."""

from __future__ import annotations

from kubernetes.client import V1EnvVarSource, V1PodSpec

from fray.wire.pod_schema import ENV_VALUE_FROM, POD_SPEC_FIELDS, POD_TEMPLATE

LEFT_OUT = {
    "hostname": "declared, to be refused with a reason",
    "subdomain": "declared, to be refused with a reason",
    "restartPolicy": "declared, to be refused unless Never",
    "hostnameOverride": "hosts of a gang find each other by name",
    "ephemeralContainers": "not allowed in a template",
    "serviceAccount": "deprecated spelling of serviceAccountName",
    "schedulingGroup": "newer than the JobSet releases that Fray runs on",
    "evictionResponders": "newer than the JobSet releases that Fray runs on",
}


def test_every_field_of_a_pod_spec_is_listed_or_left_out_for_a_reason() -> None:
    known = set(V1PodSpec.attribute_map.values())
    assert known - set(POD_SPEC_FIELDS) == set(LEFT_OUT)
    assert set(POD_SPEC_FIELDS) <= known
    assert list(POD_SPEC_FIELDS) == sorted(set(POD_SPEC_FIELDS), key=str.lower)


def test_fields_of_an_overlay_may_be_null_which_removes_them() -> None:
    fields = POD_TEMPLATE["properties"]["spec"]["properties"]
    assert {name for name, field in fields.items() if not field.get("nullable")} == {
        "hostname",
        "restartPolicy",
        "subdomain",
    }


def test_every_source_of_a_variable_is_known() -> None:
    left_out = {"fileKeyRef"}  # alpha in Kubernetes 1.34
    assert set(V1EnvVarSource.attribute_map.values()) - left_out == set(ENV_VALUE_FROM["properties"])
