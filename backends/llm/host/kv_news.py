"""Forwards a host's cache and GPU events to the records and to the prefix index."""

import asyncio
from collections.abc import Callable, Iterator

from backends.llm.base import EngineRecords, KvListener
from contracts.engine.wire import Answer, Call, Devices, FromGateway, Hello, KvBlocks, KvEvents


class KvNews:
    """Forwards the events of one host. `records` gets KV events only if `records_kv` is set."""

    __slots__ = ("_asked", "_listener", "_records", "_records_kv", "_url")

    def __init__(
        self, url: str, records: EngineRecords | None, listener: KvListener | None, *, records_kv: bool
    ) -> None:
        self._url = url
        self._records = records
        self._records_kv = records_kv
        self._listener = listener
        self._asked: dict[int, str] = {}  # models by the id of the call that requested their cached blocks

    @property
    def is_wanted(self) -> bool:
        """Return whether the host should send cache events."""
        return self._listener is not None or (self._records_kv and self._records is not None)

    def take(self, message: KvEvents | KvBlocks | Devices) -> None:
        """Forward a message."""
        if self._listener is not None:
            if isinstance(message, KvEvents):
                self._listener.on_kv_events(self._url, message.records)
            elif isinstance(message, KvBlocks):
                self._listener.on_kv_blocks(self._url, message)
        if self._records is not None and not isinstance(message, KvBlocks):
            if self._records_kv or isinstance(message, Devices):
                self._records.take_kv(message.records)

    def greeted(self, hello: Hello, send: Callable[[FromGateway], None], call_ids: Iterator[int]) -> None:
        """Process a hello. Cached blocks are requested afterwards, because the host waits for this gateway's Attach
        first.
        """
        listener = self._listener
        if listener is None or not hello.tells_blocks:
            return

        def ask(model: str) -> None:
            call_id = next(call_ids)
            self._asked[call_id] = model
            send(Call(call_id=call_id, verb="kv_blocks", model=model))

        asyncio.get_running_loop().call_soon(listener.on_kv_host, self._url, ask)

    def answered(self, answer: Answer) -> None:
        """Process the answer to a call, if the call was made here."""
        model = self._asked.pop(answer.call_id, None)
        if model is not None and not answer.ok and self._listener is not None:
            self._listener.on_kv_refused(self._url, model, answer.error_message)

    def lost(self) -> None:
        """Notify the listener that the host is gone."""
        self._asked.clear()
        if self._listener is not None:
            self._listener.on_kv_lost(self._url)
