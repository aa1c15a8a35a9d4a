"""What a FrayJob or a FrayActor may not say beyond the types of its fields, each rule once.

`RULES` judge an object, `UPDATE_RULES` a change of one; both become `x-kubernetes-validations` in the
CRD (`fray.wire.schema`), and `RULES` run in Python too (`fray.wire.validation`). Rules made of TPU and
GPU facts are generated in `fray.wire.accelerator_rules`. Types, lengths and ranges stand on the models,
and what a legal FrayJob means in `fray.plan`.

CEL is kept to what API servers since 1.29 know and can bound the cost of. A pattern is valid in RE2 and
in Python, and has no backslash, which CEL would need doubled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pydantic.alias_generators import to_camel

from fray.wire.accelerator_rules import (
    GPU_COUNT,
    GPU_TYPE,
    MULTISLICE,
    ONE_CALL_AT_A_TIME,
    SINGLE_HOST,
    TPU_CHIPS_PER_HOST,
    TPU_NAMED_TOPOLOGY,
    TPU_SIZE_TOPOLOGY,
    TPU_TYPE,
)
from fray.wire.frayactor import ActorEntrypoint, FrayActor, FrayActorSpec
from fray.wire.frayjob import (
    CallableEntrypoint,
    Entrypoint,
    FrayJob,
    FrayJobSpec,
    Placement,
    Queue,
    Workers,
    Workspace,
)
from fray.wire.model import WireModel, prune_default
from fray.wire.pod import ContainerPort, EnvFromSource, EnvVar, Gpu, Resources, Toleration, Tpu
from fray.wire.quantities import parse_quantity
from fray.wire.rule import Rule, UpdateRule

__all__ = ["RULES", "UPDATE_RULES", "Target"]

Target: TypeAlias = tuple[type[WireModel], str]
"""A model and one of its fields (its Python name), or "" for the model as a whole."""


def _matches(pattern: str) -> Callable[[str], bool]:
    """The twin of CEL's `matches` for an anchored pattern: `$` never stands before a line break."""
    compiled = re.compile(pattern[1:-1], re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


# --- scalars --------------------------------------------------------------------------------------------

# Two digits of exponent: kube-apiserver 1.34 computes for a second on 1e-9999999, and then ever longer.
_QUANTITY_PATTERN: Final = "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$"
_is_bounded_quantity: Final = _matches(_QUANTITY_PATTERN)


def _is_positive_quantity(value: int | str) -> bool:
    if isinstance(value, str) and not _is_bounded_quantity(value):
        return False
    return parse_quantity(value) > 0


def _positive_quantity(examples: str) -> Rule[int | str]:
    return Rule[int | str](
        cel="type(self) == int ? self > 0 :"
        f" self.matches('{_QUANTITY_PATTERN}') && quantity(self).isGreaterThan(quantity('0'))",
        holds=_is_positive_quantity,
        message=f"must be a quantity of more than zero, such as {examples}",
    )


_has_letter: Final = re.compile("[a-z]").search


# --- the job --------------------------------------------------------------------------------------------


def _exactly_one(*fields: str) -> Rule[Any]:
    """Of two or more fields, by their names on the wire."""
    present = [f"has(self.{field})" for field in fields]
    cel = f"{present[0]} != {present[1]}" if len(fields) == 2 else f"[{', '.join(present)}].exists_one(x, x)"

    def holds(value: WireModel | dict[str, Any]) -> bool:
        written = value if isinstance(value, dict) else value.model_dump(by_alias=True)
        return sum(written.get(field) is not None for field in fields) == 1

    text = f"{', '.join(fields[:-1])} and {fields[-1]}"
    return Rule[Any](cel=cel, holds=holds, message=f"exactly one of {text} must be set")


def _more_secrets() -> Rule[Any]:
    """Of what lies in one Secret or several."""
    return Rule[Any](
        cel="!has(self.moreSecrets) || self.moreSecrets.size() == 0 || has(self.secretName)",
        holds=lambda value: not value.more_secrets or value.secret_name is not None,
        message="needs secretName",
        field="moreSecrets",
    )


def _named(longest: int) -> Rule[Any]:
    """Of an object whose name is part of the names of others."""
    return Rule[Any](
        cel=f"self.metadata.name.size() <= {longest} && !self.metadata.name.contains('.')",
        holds=lambda value: len(value.metadata.name) <= longest and "." not in value.metadata.name,
        message=f"must have at most {longest} characters and no dot",
        field="metadata.name",
    )


def _command_names_program(command: list[str]) -> bool:
    return not command or command[0] != ""


def _ports_differ(ports: list[ContainerPort]) -> bool:
    return len({port.port for port in ports}) == len(ports)


_ORDERED_RANGE: Final = Rule[Workers](
    cel="!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    holds=lambda workers: workers.max_replicas is None or workers.min_replicas <= workers.max_replicas,
    message="must not be more than maxReplicas",
    field="minReplicas",
)


# --- the parts of a pod ---------------------------------------------------------------------------------


def _toleration_rules() -> tuple[Rule[Toleration], ...]:
    """As `ValidateTolerations` in kube-apiserver (pkg/apis/core/validation)."""
    return (
        Rule(
            cel="(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
            holds=lambda t: bool(t.key) or t.operator == "Exists",
            message="must be Exists when key is empty, which means all keys and values",
            field="operator",
        ),
        Rule(
            cel="!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
            holds=lambda t: t.operator != "Exists" or not t.value,
            message="must be empty when operator is Exists",
            field="value",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            holds=lambda t: t.toleration_seconds is None or t.effect == "NoExecute",
            message="must be NoExecute when tolerationSeconds is set",
            field="effect",
        ),
    )


def _pod_template_rules() -> tuple[Rule[dict[str, Any]], ...]:
    def forbid(field: str) -> Rule[dict[str, Any]]:
        return Rule(
            cel=f"!has(self.spec) || !has(self.spec.{field})",
            holds=lambda template: field not in template.get("spec", {}),
            message="is set by Fray: hosts find each other by it",
            field=f"spec.{field}",
            reason="FieldValueForbidden",
        )

    return (
        Rule(
            cel="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy == 'Never'",
            holds=lambda template: template.get("spec", {}).get("restartPolicy", "Never") == "Never",
            message="must be Never: the hosts of a gang start again together (see spec.retries)",
            field="spec.restartPolicy",
        ),
        forbid("hostname"),
        forbid("subdomain"),
    )


_PORT_NAME: Final = Rule[str](
    cel="self.matches('[a-z]') && !self.contains('--')",
    holds=lambda name: _has_letter(name) is not None and "--" not in name,
    message="must have a letter and no '--', as names of container ports",
)


# --- the tables -----------------------------------------------------------------------------------------

RULES: Final[Mapping[Target, tuple[Rule[Any], ...]]] = MappingProxyType(
    {
        (FrayJob, ""): (_named(63),),
        (FrayJobSpec, ""): (MULTISLICE,),
        (FrayJobSpec, "ports"): (
            Rule[list[ContainerPort]](
                cel="self.all(a, self.exists_one(b, a.port == b.port))",
                holds=_ports_differ,
                message="must have each port number once",
            ),
        ),
        (FrayJobSpec, "pod_template"): _pod_template_rules(),
        (Entrypoint, ""): (_exactly_one("command", "callable"),),
        (CallableEntrypoint, ""): (
            _exactly_one("secretName", "url"),
            _more_secrets(),
        ),
        (Entrypoint, "command"): (
            Rule[list[str]](
                cel="self.size() == 0 || self[0] != ''",
                holds=_command_names_program,
                message="must begin with the name of a program",
            ),
        ),
        (Resources, ""): (
            Rule[Resources](
                cel="!has(self.tpu) || !has(self.gpu)",
                holds=lambda resources: resources.tpu is None or resources.gpu is None,
                message="at most one of tpu and gpu may be set",
                field="gpu",
            ),
        ),
        (Resources, "cpu"): (_positive_quantity('500m, "8" or 1.5'),),
        (Resources, "memory"): (_positive_quantity("512Mi, 32Gi or 100G"),),
        (Resources, "disk"): (_positive_quantity("512Mi, 50Gi or 1Ti"),),
        (Tpu, ""): (TPU_NAMED_TOPOLOGY, TPU_SIZE_TOPOLOGY, TPU_CHIPS_PER_HOST),
        (Tpu, "type"): (TPU_TYPE,),
        (Gpu, ""): (GPU_COUNT,),
        (Gpu, "type"): (GPU_TYPE,),
        (Placement, ""): (
            Rule[Placement](
                cel="self.preemptible || self.spot != 'Required'",
                holds=lambda placement: placement.preemptible or placement.spot != "Required",
                message="must be true when spot is Required",
                field="preemptible",
            ),
            Rule[Placement](
                cel="!has(self.flexStart) || self.spot != 'Required'",
                holds=lambda placement: placement.flex_start is None or placement.spot != "Required",
                message="must be unset when spot is Required: flex-start nodes are no spot nodes",
                field="flexStart",
                reason="FieldValueForbidden",
            ),
            Rule[Placement](
                cel="!has(self.flexStart) || !has(self.reservation)",
                holds=lambda placement: placement.flex_start is None or placement.reservation is None,
                message="must be unset where flexStart is set: flex-start nodes consume no reservation",
                field="reservation",
                reason="FieldValueForbidden",
            ),
        ),
        (Workers, ""): (_ORDERED_RANGE, SINGLE_HOST),
        (Workers, "pod_template"): _pod_template_rules(),
        (Workspace, ""): (_exactly_one("secretName", "url"), _more_secrets()),
        (ContainerPort, "name"): (_PORT_NAME,),
        (EnvFromSource, ""): (_exactly_one("configMapRef", "secretRef"),),
        (EnvVar, ""): (
            Rule[EnvVar](
                cel="!has(self.value) || !has(self.valueFrom)",
                holds=lambda variable: variable.value is None or variable.value_from is None,
                message="at most one of value and valueFrom may be set",
                field="valueFrom",
            ),
        ),
        (EnvVar, "value_from"): (
            _exactly_one("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"),
        ),
        (Toleration, ""): _toleration_rules(),
        # Its StatefulSet has its name, and a label of the pods 11 characters more.
        (FrayActor, ""): (_named(52),),
        (FrayActorSpec, ""): (
            ONE_CALL_AT_A_TIME,
            Rule[FrayActorSpec](
                cel="(self.lifetime == 'job') == has(self.rootJob)",
                holds=lambda spec: (spec.lifetime == "job") == (spec.root_job is not None),
                message="must be set where lifetime is job, and only there",
                field="rootJob",
            ),
            Rule[FrayActorSpec](
                cel="!has(self.placement.flexStart) || self.placement.flexStart != 'Queued'",
                holds=lambda spec: spec.placement.flex_start != "Queued",
                message="must not be Queued: Kueue asks for no nodes for actors",
                field="placement.flexStart",
            ),
            Rule[FrayActorSpec](
                cel="!has(self.entrypoint.hosted) || (self.replicas == 1 && !self.suspend)",
                holds=lambda spec: (
                    spec.entrypoint.hosted is None or (spec.replicas == 1 and not spec.suspend)
                ),
                message="is served by a process that runs already: replicas must be 1, and suspend false",
                field="entrypoint.hosted",
            ),
        ),
        (ActorEntrypoint, ""): (_exactly_one("callable", "class", "hosted"),),
    }
)
"""What must hold of every FrayJob and FrayActor, by the value it is judged on."""


IMMUTABLE: Final = "is immutable: delete the object, or make another"
STAYS_STOPPED: Final = UpdateRule(
    cel="self || !oldSelf",
    message="must stay true: what was stopped doesn't run again",
)


def _immutable_fields(model: type[WireModel], *, but: frozenset[str]) -> tuple[UpdateRule, ...]:
    return tuple(
        _immutable(name, optional=not field.is_required() and _is_left_out(field.default))
        for name, field in model.model_fields.items()
        if name not in but
    )


def _is_left_out(default: Any) -> bool:
    made = default.model_dump(mode="json", by_alias=True) if isinstance(default, WireModel) else default
    return prune_default(made) is None


def _immutable(name: str, *, optional: bool) -> UpdateRule:
    field = to_camel(name)
    cel = f"self.{field} == oldSelf.{field}"
    if optional:  # one with a default is always there: the API server fills it in
        cel = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {cel})"
    return UpdateRule(
        cel=cel,
        message=IMMUTABLE,
        field=field,
    )


ALWAYS_MUTABLE: Final = frozenset({"suspend", "stopped", "ttl_seconds_after_finished"})
MUTABLE: Final = ALWAYS_MUTABLE | {"retries", "timeouts"}
"""Fields of a job's spec that may change while it lives: every pass reads them anew."""

UPDATE_RULES: Final[Mapping[Target, tuple[UpdateRule, ...]]] = MappingProxyType(
    {
        (FrayJobSpec, ""): (
            *_immutable_fields(FrayJobSpec, but=MUTABLE | {"workers", "queue"}),
            UpdateRule(
                cel="has(self.queue) == has(oldSelf.queue)",
                message=IMMUTABLE,
                field="queue",
            ),
        ),
        (FrayJobSpec, "stopped"): (STAYS_STOPPED,),
        (Queue, ""): _immutable_fields(Queue, but=frozenset({"priority_class"})),
        (Workers, ""): _immutable_fields(Workers, but=frozenset({"replicas"})),
        (FrayActorSpec, ""): _immutable_fields(FrayActorSpec, but=ALWAYS_MUTABLE | {"replicas"}),
        (FrayActorSpec, "stopped"): (STAYS_STOPPED,),
    }
)
"""What must hold between a FrayJob or FrayActor and the one that it replaces."""
