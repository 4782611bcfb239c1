"""Answers that are complete in one turn of the event loop: their records are written together, then they go out."""

import asyncio
import logging

from gateway.exchange import Exchange
from gateway.recorder import Recorder, WholeRequest
from gateway.reply import JSON

_log = logging.getLogger(__name__)


class Ending:
    """The record and the answer of a request that has ended well; `lines` are the answer's own headers."""

    __slots__ = ("record", "exchange", "body", "lines")

    def __init__(
        self,
        record: WholeRequest,
        exchange: Exchange,
        body: bytes,
        lines: bytes,
    ) -> None:
        self.record = record
        self.exchange = exchange
        self.body = body
        self.lines = lines

    def send(self) -> None:
        """Answer."""
        self.exchange.send_lines(200, JSON, self.body, self.lines)


class StreamEnding(Ending):
    """The same of a stream, which has begun: `body` is its last piece."""

    __slots__ = ()

    def send(self) -> None:
        """End the stream."""
        self.exchange.end(self.body)


class Endings:
    """Writes records and then sends answers, for all requests that end before the loop looks at its sockets again.

    One write on disk costs a twentieth of an answer and serves as many as there are; nobody waits longer for it, since
    what is sent within a turn leaves at its end in any case.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: list[Ending] = []
        self._unwritten: list[WholeRequest] = []

    def add(self, ending: Ending) -> None:
        """End a request at the end of this turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._end_all)
        self._waiting.append(ending)
        self._unwritten.append(ending.record)

    def write(self) -> None:
        """Write what is not written yet. What they were charged is on the counters already: whoever takes these down
        together with the journal's end has the records written first."""
        records, self._unwritten = self._unwritten, []
        try:
            if records:
                self._recorder.record_whole(records)
        except Exception:  # what is on disk is not written twice, and the answers are good ones
            _log.exception("records could not be told of", extra={"requests": len(records)})

    def _end_all(self) -> None:
        self.write()
        waiting, self._waiting = self._waiting, []
        for ending in waiting:
            try:
                ending.send()
            except Exception:  # one connection's fault must not keep the others' answers
                _log.exception("an answer could not be sent")
