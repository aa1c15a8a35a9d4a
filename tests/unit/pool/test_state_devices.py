"""Accelerators as slots with identities: which process gets which, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from fray.errors import InvalidOptionError
from fray.runtime.pool.host.devices import check_devices, device_variables
from fray.runtime.pool.machine.devices import UNITS, choose_slots
from fray.runtime.pool.messages.commands import RunTask, StartWorker, StopWorker
from fray.runtime.pool.messages.events import (
    ActorSubmitted,
    TaskBlocked,
    TaskDone,
    TaskUnblocked,
    WorkerJoined,
    WorkerLost,
)
from fray.runtime.pool.messages.specs import DRIVER, Profile
from tests.unit.pool.state_script import Script, make_actor

ONE = b"1"
GPU = (("CPU", 1.0), ("GPU", 1.0))


def script_with(cpus: int = 4, **more: float) -> Script:
    script = Script()
    script.join_host(1, cpus, **more)
    return script


def started(commands: list[Any]) -> list[StartWorker]:
    return [command for command in commands if isinstance(command, StartWorker)]


def ran(commands: list[Any]) -> list[tuple[int, int]]:
    return [(command.worker, command.spec.id) for command in commands if isinstance(command, RunTask)]


@pytest.mark.parametrize(
    ("free", "amount", "chosen"),
    [
        ([1, 1, 1], 2, {0: 1, 1: 1}),
        ([0, 1, 0.5], 1, {1: 1}),
        ([0.5, 0.5], 1, None),
        ([1, 0.5, 0.75], 0.5, {1: 0.5}),
        ([1, 0.25], 0.5, {0: 0.5}),
        ([1, 0.5], 1.5, {0: 1, 1: 0.5}),
        ([1], 1.5, None),
        ([], 1, None),
    ],
)
def test_whole_devices_are_whole_and_fractions_fill_up(
    free: list[float], amount: float, chosen: dict[int, float] | None
) -> None:
    units = [round(each * UNITS) for each in free]
    wanted = chosen and {index: round(part * UNITS) for index, part in chosen.items()}
    assert choose_slots(units, round(amount * UNITS)) == wanted


def test_tasks_get_devices_of_their_own_by_the_process_that_runs_them() -> None:
    script = script_with(GPU=2.0)
    (first,) = started(script.submit(1, shape=GPU))
    assert script.submit(2, shape=GPU) == []
    assert script.submit(3, shape=GPU) == []
    commands = script.tell(DRIVER, WorkerJoined(first.worker))
    (second,) = started(commands)
    assert (first.devices, second.devices) == ((("GPU", (0,)),), (("GPU", (1,)),))
    assert ran(commands) == [(first.worker, 1)]
    assert ran(script.tell(DRIVER, WorkerJoined(second.worker))) == [(second.worker, 2)]
    assert ran(script.tell(second.worker, TaskDone(2, ONE))) == [(second.worker, 3)]


def test_a_task_that_waits_shares_its_devices_with_no_other() -> None:
    script = script_with(GPU=1.0)
    (start,) = started(script.submit(1, shape=GPU))
    script.tell(DRIVER, WorkerJoined(start.worker))
    assert script.submit(2, shape=GPU) == []
    assert script.tell(start.worker, TaskBlocked(1)) == []
    script.tell(start.worker, TaskUnblocked(1))
    assert ran(script.tell(start.worker, TaskDone(1, ONE))) == [(start.worker, 2)]


def test_a_process_without_work_makes_room_for_others_that_need_its_devices() -> None:
    script = script_with(GPU=1.0)
    (start,) = started(script.submit(1, shape=GPU))
    script.tell(DRIVER, WorkerJoined(start.worker))
    script.submit(2, shape=GPU, profile=Profile(env=(("A", "1"),)))
    commands = script.tell(start.worker, TaskDone(1, ONE))
    assert commands[-1] == StopWorker(start.worker, False, "others need its accelerators")
    (other,) = started(script.tell(DRIVER, WorkerLost(start.worker, "exited", expected=True, retired=True)))
    assert other.devices == (("GPU", (0,)),)
    assert ran(script.tell(DRIVER, WorkerJoined(other.worker))) == [(other.worker, 2)]


def test_actors_have_devices_too_and_give_them_back_with_their_process() -> None:
    script = script_with(TPU=4.0)
    actor = ActorSubmitted(make_actor(7, shape=(("TPU", 2.0),)), b"c")
    (first,) = started(script.tell(DRIVER, actor))
    (task,) = started(script.submit(1, shape=(("TPU", 2.0),)))
    assert (first.devices, task.devices) == ((("TPU", (0, 1)),), (("TPU", (2, 3)),))
    script.tell(DRIVER, WorkerJoined(task.worker))
    script.tell(task.worker, TaskDone(1, ONE))
    script.submit(2, shape=(("TPU", 4.0),))
    script.state.check()


def test_half_a_device_is_shared_by_two() -> None:
    script = script_with(GPU=1.0)
    half = (("CPU", 1.0), ("GPU", 0.5))
    (first,) = started(script.submit(1, shape=half))
    for number in (2, 3):
        assert script.submit(number, shape=half) == []
    (second,) = started(script.tell(DRIVER, WorkerJoined(first.worker)))
    assert first.devices == second.devices == (("GPU", (0,)),)
    assert started(script.tell(DRIVER, WorkerJoined(second.worker))) == []


@pytest.mark.parametrize(
    ("devices", "offered", "environ", "variables"),
    [
        ({"GPU": (1,)}, {"GPU": 2.0}, {}, {"CUDA_VISIBLE_DEVICES": "1"}),
        ({"GPU": (0, 1)}, {"GPU": 2.0}, {"CUDA_VISIBLE_DEVICES": "5,7"}, {"CUDA_VISIBLE_DEVICES": "5,7"}),
        ({}, {"GPU": 2.0}, {}, {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}),
        ({}, {"CPU": 2.0}, {"JAX_PLATFORMS": "tpu"}, {}),
        ({}, {"TPU": 4.0}, {"JAX_PLATFORMS": ""}, {"JAX_PLATFORMS": "cpu"}),
        ({"TPU": (0, 1, 2, 3)}, {"TPU": 4.0}, {}, {}),
        (
            {"TPU": (3,)},
            {"TPU": 4.0},
            {},
            {
                "TPU_VISIBLE_CHIPS": "3",
                "TPU_CHIPS_PER_HOST_BOUNDS": "1,1,1",
                "TPU_HOST_BOUNDS": "1,1,1",
            },
        ),
    ],
)
def test_a_process_is_told_of_its_devices_by_variables(
    devices: dict[str, tuple[int, ...]],
    offered: dict[str, float],
    environ: dict[str, str],
    variables: dict[str, str],
) -> None:
    assert device_variables(devices, offered, environ) == variables


@pytest.mark.parametrize("own", ["5", "GPU-1f"])
def test_more_devices_than_the_process_may_use_are_refused(own: str) -> None:
    check_devices({"GPU": 1.0, "CPU": 8.0}, {"CUDA_VISIBLE_DEVICES": own})
    check_devices({"GPU": 2.0}, {"CUDA_VISIBLE_DEVICES": ""})
    with pytest.raises(InvalidOptionError, match=f"at most 1, since CUDA_VISIBLE_DEVICES is '{own}' here"):
        check_devices({"GPU": 2.0}, {"CUDA_VISIBLE_DEVICES": own})
