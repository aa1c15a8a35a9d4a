"""The alerts, judged by Prometheus' own promtool: they are legal, and fire when they should and only then."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.build import build
from tests.chart.rendering import find, render

OURS = 'namespace="fray-system",service="fray-operator-metrics"'


@dataclass(frozen=True)
class Case:
    """Series for an hour, with their values by the minute in promtool's form, and when an alert fires."""

    series: dict[str, str]
    quiet_at: str
    fires_at: str | None


def leading(pod: str) -> str:
    return f'fray_leading{{{OURS},pod="{pod}"}}'


def passes(outcome: str, kind: str = "FrayJob") -> str:
    return f'fray_reconciles_total{{{OURS},kind="{kind}",outcome="{outcome}"}}'


def queued(kind: str, *, ours: str = OURS) -> str:
    return f'fray_queued_objects{{{ours},kind="{kind}"}}'


def requests(status: str) -> str:
    return f'fray_api_requests_total{{{OURS},method="GET",resource="pods",status="{status}"}}'


OTHERS = OURS.replace("fray-system", "elsewhere")
CASES = [
    ("FrayNobodyLeads", Case({leading("a"): "0x60", leading("b"): "0x60"}, "4m", "6m")),
    ("FrayNobodyLeads", Case({}, "4m", "6m")),
    ("FrayNobodyLeads", Case({leading("a"): "0x60", leading("b"): "1x60"}, "50m", None)),
    ("FrayNobodyLeads", Case({leading("a"): "1x10 0x3 1x46"}, "13m", None)),
    ("FrayPassesFail", Case({passes("error"): "0+1x60", passes("done"): "0+50x60"}, "10m", "50m")),
    ("FrayPassesFail", Case({passes("error"): "0+0.6x60", passes("done"): "0+50x60"}, "50m", None)),
    ("FrayPassesFail", Case({passes("conflict"): "0+50x60"}, "50m", None)),
    ("FrayJobsPileUp", Case({queued("FrayJob"): "101x60"}, "14m", "16m")),
    ("FrayJobsPileUp", Case({queued("FrayJob"): "100x60", queued("Other"): "100x60"}, "50m", None)),
    ("FrayJobsPileUp", Case({queued("FrayJob", ours=OTHERS): "500x60"}, "50m", None)),
    ("FrayApiServerRefuses", Case({requests("2xx"): "0+80x60", requests("5xx"): "0+20x60"}, "10m", "40m")),
    ("FrayApiServerRefuses", Case({requests("2xx"): "0+80x60", requests("0"): "0+20x60"}, "10m", "40m")),
    ("FrayApiServerRefuses", Case({requests("2xx"): "0+95x60", requests("429"): "0+5x60"}, "50m", None)),
    ("FrayApiServerRefuses", Case({requests("2xx"): "0+50x60", requests("409"): "0+50x60"}, "50m", None)),
]


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the Prometheus operator makes of the chart's PrometheusRule."""
    rule = find(render({"prometheusRule": {"enabled": True}}), "PrometheusRule")
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
    return path


def promtool(*arguments: str) -> tuple[int, str]:
    command = [str(build(("promtool",))["promtool"]), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def describe(rules: Path, alert: str, case: Case) -> dict[str, Any]:
    """Return promtool's form of a case."""
    content = yaml.safe_load(rules.read_text(encoding="utf-8"))
    (rule,) = (each for group in content["groups"] for each in group["rules"] if each["alert"] == alert)
    fired = {"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}
    expected: dict[str, list[Any]] = {case.quiet_at: []}
    if case.fires_at is not None:
        expected[case.fires_at] = [fired]
    return {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": told} for name, told in case.series.items()],
                "alert_rule_test": [
                    {"alertname": alert, "eval_time": at, "exp_alerts": alerts}
                    for at, alerts in expected.items()
                ],
            }
        ],
    }


def test_promtool_takes_the_alerts(rules: Path) -> None:
    code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", str(rules))
    assert code == 0, said
    assert "4 rules found" in said


@pytest.mark.parametrize(("alert", "case"), CASES)
def test_an_alert_fires_when_it_should_and_only_then(
    alert: str, case: Case, rules: Path, tmp_path: Path
) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump(describe(rules, alert, case)), encoding="utf-8")
    code, said = promtool("test", "rules", str(path))
    assert code == 0, said


def test_every_alert_is_judged(rules: Path) -> None:
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert alerts == {alert for alert, case in CASES if case.fires_at is not None}
    assert alerts == {alert for alert, case in CASES if case.fires_at is None}
