"""Answers that are complete in one turn of the event loop: their records are written together, then they go out."""

import asyncio
import logging
from collections.abc import Callable

from gateway.exchange import Exchange
from gateway.lane.forecast import Forecast
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


class Lesson:
    """What a request has taken, for the forecast of those that follow; see `Forecast.learn`."""

    __slots__ = ("forecast", "now_ns", "prompt_bytes", "tokens_in", "tokens_out", "finish_reason", "choices")

    def __init__(
        self,
        forecast: Forecast,
        now_ns: int,
        prompt_bytes: int,
        tokens_in: int,
        tokens_out: int,
        finish_reason: str,
        choices: int,
    ) -> None:
        self.forecast = forecast
        self.now_ns = now_ns
        self.prompt_bytes = prompt_bytes
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
        self.finish_reason = finish_reason
        self.choices = choices

    def teach(self) -> None:
        """Tell the forecast."""
        self.forecast.learn(
            self.now_ns, self.prompt_bytes, self.tokens_in, self.tokens_out, self.finish_reason, self.choices
        )


class Endings:
    """Writes records and then sends answers, for all requests that end before the loop looks at its sockets again.

    What nobody waits for, counts and lessons, follows in the next turn.

    One write on disk costs a twentieth of an answer and serves as many as there are; nobody waits longer for it, since
    what is sent within a turn leaves at its end in any case.
    """

    def __init__(self, recorder: Recorder, prepare_next: Callable[[], None]) -> None:
        """`prepare_next` does what those that follow would else have to wait for."""
        self._recorder = recorder
        self._prepare_next = prepare_next
        self._waiting: list[Ending] = []
        self._unwritten: list[WholeRequest] = []
        self._uncounted: list[WholeRequest] = []
        self._lessons: list[Lesson] = []

    def add(self, ending: Ending) -> None:
        """End a request at the end of this turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._end_all)
        self._waiting.append(ending)
        self._unwritten.append(ending.record)

    def learn(self, lesson: Lesson) -> None:
        """Keep a lesson of a request that is about to end for after its answer."""
        self._lessons.append(lesson)

    def write(self) -> None:
        """Write what is not written yet. What they were charged is on the counters already: whoever takes these down
        together with the journal's end has the records written first."""
        records, self._unwritten = self._unwritten, []
        try:
            if records:
                self._uncounted += records
                self._recorder.record_whole(records)
        except Exception:  # the answers are good ones
            _log.exception("records could not be written", extra={"requests": len(records)})

    def _end_all(self) -> None:
        self.write()
        waiting, self._waiting = self._waiting, []
        for ending in waiting:
            try:
                ending.send()
            except Exception:  # one connection's fault must not keep the others' answers
                _log.exception("an answer could not be sent")
        asyncio.get_running_loop().call_soon(self._follow_up)

    def _follow_up(self) -> None:
        """Count and learn, now that what was sent has left."""
        records, self._uncounted = self._uncounted, []
        lessons, self._lessons = self._lessons, []
        try:
            self._recorder.count_whole(records)
            for lesson in lessons:
                lesson.teach()
            self._prepare_next()
        except Exception:  # what is on disk is not written twice, and the answers are good ones
            _log.exception("requests could not be counted", extra={"requests": len(records)})
