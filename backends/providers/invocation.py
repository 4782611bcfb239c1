"""One request at a provider: passes its pieces to the gateway, applies its timeouts, and reports its end."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final

from backends.engine.connection import Connection
from backends.llm.echoed_credentials import without_credentials
from backends.processes.running_time import RunningTimeout
from backends.providers.base import Account, Order, ProviderLibrary
from contracts.engine.wire import Chunk, Invoke, Invoked
from contracts.errors import TollkeeperError, Unavailable, UpstreamTimeout

_log = logging.getLogger(__name__)

_ABORTED: Final = "aborted"


class Invocation:
    """Runs a request until its `Invoked` message is sent. `room` is set while its gateway reads."""

    def __init__(self, invoke: Invoke, connection: Connection, room: asyncio.Event) -> None:
        self.request_id = invoke.request_id
        self.connection = connection
        self._invoke = invoke
        self._room = room
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._account = Account()
        self._sent: tuple[str, ...] = ()  # credentials to remove from error messages
        self._task: asyncio.Task[None] | None = None

    def start(self, library: ProviderLibrary, order: Callable[[Invoke], Order], ended: Callable[[], None]) -> None:
        """Start. `order` parses the request and may raise; `ended` is called at the end."""

        def conclude(task: asyncio.Task[None]) -> None:
            if task.cancelled():  # before it had begun
                self._tell_end(Unavailable("the request was aborted", code=_ABORTED))
            ended()

        self._task = asyncio.get_running_loop().create_task(self._run(library, order), name="invocation")
        self._task.add_done_callback(conclude)

    def hold(self, is_held: bool) -> None:
        """Pause reading the provider's answer, or resume it."""
        if is_held:
            self._wanted.clear()
        else:
            self._wanted.set()

    def abort(self) -> None:
        """End the call at the provider. The usage so far is reported to the gateway."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, library: ProviderLibrary, order: Callable[[Invoke], Order]) -> None:
        error: Exception | None = None
        try:
            read = order(self._invoke)
            self._sent = _sent_with(read)
            await self._answer(library, read)
        except asyncio.CancelledError:
            error = Unavailable("the request was aborted", code=_ABORTED)
        except Exception as failure:  # an error in one call must not end the host
            error = failure
        self._tell_end(error)

    def _tell_end(self, error: Exception | None) -> None:
        self.connection.send(self._end(error))
        self.connection.flush()

    async def _answer(self, library: ProviderLibrary, order: Order) -> None:
        patience = order.patience
        try:
            async with RunningTimeout(patience.total), aclosing(library.answer(order, self._account)) as pieces:
                wait, what = patience.first_byte, "begin"
                while (piece := await self._next(pieces, wait, what)) is not None:
                    self.connection.send(Chunk(request_id=self.request_id, data=piece))
                    self.connection.flush()
                    wait, what = patience.between, "go on"
                    await asyncio.sleep(0)  # let the loop process an abort even if the provider is fast
                    await self._wanted.wait()
                    await self._room.wait()
        except TimeoutError as error:
            raise UpstreamTimeout(f"the provider did not finish within {patience.total:g} s") from error

    async def _next(self, pieces: AsyncGenerator[bytes, None], seconds: float, what: str) -> bytes | None:
        try:
            async with RunningTimeout(seconds):
                return await anext(pieces, None)
        except TimeoutError as error:
            raise UpstreamTimeout(f"the provider did not {what} within {seconds:g} s") from error

    def _end(self, error: Exception | None) -> Invoked:
        usage = self._account.usage
        if error is None:
            return Invoked(request_id=self.request_id, usage=usage)
        if not isinstance(error, TollkeeperError):
            # Its text may contain a prompt or a key, so only its class and place are logged.
            _log.error("invocation failed", extra={"error": type(error).__name__, "at": _place(error)})
            error = TollkeeperError("the provider host failed at this request; its log says where")
        return Invoked(
            request_id=self.request_id,
            usage=usage,
            error_kind=type(error).code,
            error_code=error.error_code,
            error_message=without_credentials(error.message, self._sent),
            param=error.param or "",
            retry_after_seconds=error.retry_after_seconds,
            upstream_status=error.upstream_status,
            is_unsent=error.is_unsent,
        )


def _sent_with(order: Order) -> tuple[str, ...]:
    headers = order.parameters.get("extra_headers")
    stated = headers.values() if isinstance(headers, Mapping) else ()
    return (*order.credentials.values(), *(value for value in stated if isinstance(value, str)))


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
