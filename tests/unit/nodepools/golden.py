"""The golden requests, and the jobs they are made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fray.nodepools.requests import (
    PoolChoices,
    PoolRequest,
    build_pool,
    choose_for_job,
    derive_pool_demand,
)
from fray.plan.placement import NodeDemand
from fray.wire.frayjob import FrayJob

FILE = Path(__file__).with_name("golden_requests.yaml")


@dataclass(frozen=True)
class Golden:
    case: str
    spec: dict[str, Any]
    choices: PoolChoices
    body: dict[str, Any]
    policy: dict[str, Any] | None = None

    @property
    def demand(self) -> NodeDemand:
        return derive_pool_demand(build_job(self.spec), dynamic=self.choices.dynamic_slices)

    @property
    def request(self) -> PoolRequest:
        return build_request(self.spec, self.choices)


def load_golden() -> list[Golden]:
    cases = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return [
        Golden(
            each["case"],
            each["spec"],
            _choices(each.get("choices") or {}),
            each["body"],
            each.get("policy"),
        )
        for each in cases
    ]


def build_job(spec: dict[str, Any]) -> FrayJob:
    return FrayJob.model_validate(
        {"metadata": {"name": "train"}, "spec": {"entrypoint": {"command": ["true"]}, **spec}}
    )


def build_request(spec: dict[str, Any], choices: PoolChoices | None = None) -> PoolRequest:
    job, choices = build_job(spec), choices or PoolChoices()
    demand = derive_pool_demand(job, dynamic=choices.dynamic_slices)
    return build_pool(demand, choose_for_job(job, choices))


def _choices(given: dict[str, Any]) -> PoolChoices:
    return PoolChoices(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    )
