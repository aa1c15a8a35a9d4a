"""TLS between asyncio's plain transport and a connection, in less code than asyncio's own for each message.

A head passes on small messages, one at a time: what asyncio's layer does for each costs more than the head's
own work. Here are no renegotiation, no sessions and no pauses of reading, none of which the pool uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

__all__ = ["TlsLayer"]

_PIECE = 64 * 1024
"""Bytes given to OpenSSL at once: its memory for what comes in never shrinks, and a head has thousands."""


class TlsLayer(asyncio.BufferedProtocol):
    """Hears the plain transport, and is the transport of `application` once both sides have agreed on TLS.

    Parameters: the `context` of TLS; the `application`; whether this is the side that listens
    (`server_side`); a `read_buffer`, which connections of one thread may share; `close_seconds`: how long
    the peer may take to end the connection too.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        application: asyncio.BufferedProtocol,
        *,
        server_side: bool,
        read_buffer: memoryview,
        close_seconds: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._secured: asyncio.Future[None] = self._loop.create_future()
        self._application = application
        self._read_buffer = read_buffer
        self._close_seconds = close_seconds
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._transport: asyncio.Transport | None = None
        self._began = self._closing = False
        self._failure: Exception | None = None
        self._deadline: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        """Return when both sides have agreed on TLS.

        Raises `ssl.SSLError` if they can't, `OSError` if the connection ends before.
        """
        try:
            await self._secured
        except BaseException:
            self.abort()
            raise

    # --- of the application --------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data; never blocks."""
        if self._transport is not None and not self._closing:
            self._tls.write(data)
            self._transport.write(self._outgoing.read())

    def close(self) -> None:
        """Send what was written, say that it is all, and end the connection once the peer has ended it."""
        transport = self._transport
        if transport is None or self._closing:
            return
        self._closing = True
        with contextlib.suppress(ssl.SSLError):  # the peer hasn't said so too, which nobody waits for
            self._tls.unwrap()
        transport.write(self._outgoing.read())
        # Not closed at once: what the peer has sent meanwhile would make its kernel drop our last words.
        with contextlib.suppress(OSError):  # a peer of this machine that has gone lets it fail at once
            transport.write_eof()
        self._deadline = self._loop.call_later(self._close_seconds, transport.abort)

    def abort(self) -> None:
        """End the connection at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set from how many unsent bytes on the application is asked to pause."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what asyncio knows of the connection, such as its `socket`."""
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    # --- of the plain transport ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to agree on TLS."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the signature is asyncio's)
        """Return where the next bytes are to be put."""
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes, and give the application what they say."""
        received = self._read_buffer[:nbytes]
        for start in range(0, nbytes, _PIECE):
            if self._closing:
                return
            self._incoming.write(received[start : start + _PIECE])
            if not self._began and not self._shake_hands():
                continue
            full = True
            while full:
                target = memoryview(self._application.get_buffer(-1))
                filled = self._decrypt(target)
                full = filled == len(target)
                if filled:
                    self._application.buffer_updated(filled)

    def _decrypt(self, target: memoryview) -> int:
        """Fill `target` with what has come; return how many bytes that were, as many as there are if less."""
        incoming, tls = self._incoming, self._tls
        filled = 0
        if self._closing:  # by what came before
            return filled
        try:
            # A read that finds nothing raises: without the look, that would be one for each message.
            more = incoming.pending or tls.pending()
            while more:
                count: int = tls.read(len(target) - filled, target[filled:])  # type: ignore[assignment]
                if not count:
                    self._end_with_peer()
                    break
                filled += count
                # The rest of a record is only left where `target` is full.
                more = incoming.pending and filled < len(target)
        except ssl.SSLWantReadError:
            pass  # the rest of a record is on its way
        except ssl.SSLError as error:
            self._fail(error)
        return filled

    def _end_with_peer(self) -> None:
        """End the connection now that the peer has said that it was all, also if it holds its socket open."""
        assert self._transport is not None
        self.close()
        self._transport.close()

    def eof_received(self) -> None:
        """Let the transport close: the peer sends nothing any more."""

    def pause_writing(self) -> None:
        """Ask the application to pause."""
        self._application.pause_writing()

    def resume_writing(self) -> None:
        """Ask the application to go on."""
        self._application.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application, or who waits for `begin`, that it is over."""
        self._closing = True
        if self._deadline is not None:
            self._deadline.cancel()
        reason = self._failure or exc
        if self._began:
            self._application.connection_lost(reason)
        if not self._secured.done():
            self._secured.set_exception(reason or ConnectionResetError("the peer ended it"))
            self._secured.exception()  # seen: who was to wait for it may have given up

    def _shake_hands(self) -> bool:
        """Go on with agreeing on TLS; return whether it's done."""
        assert self._transport is not None
        try:
            self._tls.do_handshake()
            self._began = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
            return False
        self._transport.write(self._outgoing.read())
        if self._began:
            self._application.connection_made(self)  # type: ignore[arg-type]
            if not self._secured.done():
                self._secured.set_result(None)
        return self._began

    def _fail(self, error: ssl.SSLError) -> None:
        """End a connection on which the peer broke TLS, or refused ours; it is told why."""
        assert self._transport is not None
        self._failure = error
        self._transport.write(self._outgoing.read())
        self.abort()
