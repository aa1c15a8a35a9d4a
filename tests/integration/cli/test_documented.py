"""The commands that the README shows on a cluster are run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.integration.cli.conftest import Command, Machine
from tests.integration.controller.operator_thread import OperatorThread

ROOT = Path(__file__).parents[3]
NAMESPACE = "default"


def read_commands() -> list[list[str]]:
    """Return the commands of the block, each as its words."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if "fray doctor" in block]
    return [words for line in block.splitlines() if (words := shlex.split(line, comments=True))]


def test_commands_on_a_cluster(fray: Command, machine: Machine, operator: OperatorThread) -> None:
    (_, spec), *commands = read_commands()
    name, _, value = spec.partition("=")
    fray.variables[name] = value.replace(NAMESPACE, machine.hands.namespace)
    fray.folder = ROOT
    told = {}
    for program, command, *arguments in commands:
        assert program == "fray"
        running = fray.start(command, *arguments)
        if command == "run" and "--detach" not in arguments:
            jobset, pods = machine.start("digits-a1")
            for pod in pods:
                machine.kubelet.write(pod, "epoch 1")
            machine.end(jobset)
        if command == "stop":
            machine.hands.await_job("big", lambda job: job["spec"].get("stopped"))
            machine.hands.collect_until(lambda: machine.hands.job("big")["status"].get("phase") == "Stopped")
        told[command, *arguments[:1]] = fray.finish(running)
    # This cluster's operator goes by another name than the chart's, and there is no account for jobs.
    doctor = told.pop(("doctor",))
    assert (doctor.code, doctor.out.splitlines()[0].split()[0]) == (1, "ok")
    assert {key: result.code for key, result in told.items()} == dict.fromkeys(told, 0), told
    assert told["run", "-f"].out.count("epoch 1\n") == 4
    assert told["logs", "digits"].out == "[1/0] epoch 1\n"
    assert [line.split()[0] for line in told[("list",)].out.splitlines()] == ["NAME", "big", "digits"]
    assert told["stop", "big"].err == "big: stopped\n"
