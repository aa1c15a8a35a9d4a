"""What a process asks before it may work: of a server that answers slowly, or not at first, all at once."""

from __future__ import annotations

import asyncio

from fray.kube.resources import FRAYACTORS, FRAYJOBS, JOBSETS, LEASES, PODS, Resource
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray_operator.metrics import Metrics
from fray_operator.process import OperatorProcess
from fray_operator.settings import OperatorSettings
from tests.unit.controller.virtual_time import run


def test_a_process_looks_at_all_that_it_needs_at_once() -> None:
    asked: dict[Resource, float] = {}

    async def main() -> None:
        async def answer_slowly(call: Call) -> None:
            if call.resource == LEASES:
                process.stop()
            asked.setdefault(call.resource, asyncio.get_running_loop().time())
            await asyncio.sleep(10.0)

        settings = OperatorSettings(http_host="127.0.0.1", http_port=0)
        process = OperatorProcess(MemoryApi(MemoryServer(), before=answer_slowly), settings, Metrics())
        await process.run()

    run(main())
    leases_at = asked.pop(LEASES)
    assert {FRAYJOBS, FRAYACTORS, JOBSETS, PODS} <= asked.keys()
    assert set(asked.values()) == {0.0}
    assert leases_at == 10.0
