"""`python -m fray_operator`: reads the environment, runs the operator, and says how it ended.

Exit codes: 0 after SIGTERM, 1 when it can't go on (the log says why), 2 for wrong settings.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys

from fray.kube.client import KubernetesApi
from fray.kube.configuration import load_configuration
from fray.kube.official_client import config
from fray.nodepools.provider import NodePoolProvider
from fray_operator.health import PortUnavailableError
from fray_operator.lease import LeaseLostError
from fray_operator.logs import configure_logging
from fray_operator.metrics import Metrics
from fray_operator.node_pools import build_provider
from fray_operator.process import OperatorProcess, ServableKindError
from fray_operator.settings import OperatorSettings, SettingsError
from fray_operator.source import UnwatchedKindError

__all__ = ["main"]

logger = logging.getLogger("fray_operator")

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEEPEST_OBJECT = 12_000
"""Nested calls that are allowed. The API server takes objects that are nested 10,000 deep, and Python reads
only 1,000 by default: anybody's FrayJob could end the operator. A stack of 8 MiB is enough.
"""


MMAP_THRESHOLD = -3
"""glibc's option of `mallopt`: from what size on a piece of memory is the system's own, and given back."""
GIVEN_BACK_BYTES = 1 << 17


def main() -> None:
    """Run the operator until SIGTERM."""
    try:
        settings = OperatorSettings.from_env(os.environ)  # noqa: TID251 - the one place that reads it
        node_pools = build_provider(settings)
    except SettingsError as error:
        sys.stderr.write(f"fray-operator: {error}\n")
        sys.exit(2)
    configure_logging(settings.log_level)
    sys.setrecursionlimit(DEEPEST_OBJECT)
    _give_memory_back()
    sys.exit(asyncio.run(_run(settings, node_pools)))


def _give_memory_back() -> None:
    """Have the C library give large pieces back when they are freed; it raises its limit for them otherwise.

    Pages of large objects would leave gaps that nothing else fits into. Other C libraries have no such call.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(MMAP_THRESHOLD, GIVEN_BACK_BYTES)


async def _run(settings: OperatorSettings, node_pools: NodePoolProvider | None) -> int:
    metrics = Metrics()
    try:
        configuration = await load_configuration(kubeconfig=settings.kubeconfig)
    except (config.ConfigException, OSError) as error:
        logger.error("no cluster to talk to: neither a pod's account nor a kubeconfig: %s", error)
        return 1
    async with KubernetesApi(configuration, on_answer=metrics.count_request) as api:
        process = OperatorProcess(
            api, settings, metrics, node_pools=node_pools, claim_signals=lambda: _claim_signals(process)
        )
        _claim_signals(process)
        try:
            await process.run()
        except LeaseLostError as error:
            logger.error("%s; ending so that nothing is done twice", error)
            # At once: no cleanup may write, or wait for, anything.
            os._exit(1)
        except (ServableKindError, UnwatchedKindError, PortUnavailableError) as error:
            logger.error("%s; ending, to be started again", error)
            return 1
        except Exception:
            logger.exception("a part of the operator failed; ending, to be started again")
            return 1
        finally:
            _ignore_signals()
    return 0


def _claim_signals(process: OperatorProcess) -> None:
    for number in END_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, process.stop)


def _ignore_signals() -> None:
    """Let no further signal end a process that is ending: a closed loop leaves them to the system."""
    for number in END_SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
