"""/healthz, /readyz and /metrics.

Healthy means: restarting this process would not help. A leader whose watch has been silent for longer
than the server keeps one open is not healthy; a standby always is.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from fray_operator.metrics import Metrics

__all__ = ["SILENCE_LIMIT_SECONDS", "HealthServer", "PortUnavailableError"]

SILENCE_LIMIT_SECONDS = 360.0
"""The API server ends every watch after 5 minutes at the latest, so that long a silence is a fault."""


class PortUnavailableError(Exception):
    """The port of the probes can't be listened on; the message says why and what to set."""


class HealthServer:
    """Serves probes and metrics.

    `problem` returns what is wrong, None where all is well; `readiness` whether anything is served, and what
    to tell of it.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        host: str,
        port: int,
        problem: Callable[[], str | None],
        readiness: Callable[[], tuple[bool, str]],
        refresh: Callable[[], None],
    ) -> None:
        self._metrics, self._host, self._port = metrics, host, port
        self._problem, self._readiness, self._refresh = problem, readiness, refresh
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; raises `PortUnavailableError`."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._render),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise PortUnavailableError(f"{error.strerror}: set FRAY_HTTP_HOST or FRAY_HTTP_PORT") from error

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        problem = self._problem()
        return _answer(problem or "ok", well=problem is None)

    async def _readyz(self, _request: web.Request) -> web.Response:
        well, text = self._readiness()
        return _answer(text, well=well)

    async def _render(self, _request: web.Request) -> web.Response:
        self._refresh()
        return web.Response(body=self._metrics.render(), content_type="text/plain")


def _answer(text: str, *, well: bool) -> web.Response:
    return web.Response(text=text, status=200 if well else 503)
