"""Answers that are complete in one turn of the event loop: their records are written together, then they go out."""

import asyncio
import logging
from collections.abc import Callable

from backends.http_client.asker import Asker
from backends.processes.native import mypyc_attr
from gateway.lane.forecast import Forecast
from gateway.records.recorder import Recorder, WholeRequest
from gateway.replies.reply import JSON
from gateway.wire.exchange import Exchange

_log = logging.getLogger(__name__)


@mypyc_attr(acyclic=True)  # it leads to nothing that leads back
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


@mypyc_attr(acyclic=True)
class StreamEnding(Ending):
    """The same of a stream, which has begun: `body` is its last piece."""

    __slots__ = ()

    def send(self) -> None:
        """End the stream."""
        self.exchange.end(self.body)


@mypyc_attr(allow_interpreted_subclasses=True)  # as what follows
class Sending(Asker):
    """A request that gets ready for its reply."""

    __slots__ = ()

    def prepare(self) -> None:
        """Get ready, once it is on its way: what is sent in a turn leaves at its end."""


@mypyc_attr(allow_interpreted_subclasses=True)  # tests watch it
class Following(Sending):
    """What a request is still owed once its answer has left."""

    __slots__ = ()

    def conclude(self) -> None:
        """Charge it, and give back what it holds."""


@mypyc_attr(acyclic=True)  # it leads to nothing that leads back
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
    """Writes a request's record and then sends its answer; what nobody waits for, charges, counts and lessons, follows.

    Requests that end before the loop looks at its sockets again share one write: on disk it costs a twentieth of an
    answer and serves as many as there are. Nobody waits longer for it, since what is sent within a turn leaves at its
    end in any case. While turns have one ending each, as where requests are few, a whole answer is not put off to the
    turn's end.
    """

    def __init__(self, recorder: Recorder, prepare_next: Callable[[], None]) -> None:
        """`prepare_next` does what those that follow would else have to wait for."""
        self._recorder = recorder
        self._prepare_next = prepare_next
        self._at_turns_end: Callable[[], None] = self._end_turn
        self._afterwards: Callable[[], None] = self._follow_up
        self._once_sent: Callable[[], None] = self._prepare_sent
        self._sent: list[Sending] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[Ending] = []
        self._unwritten: list[WholeRequest] = []
        self._uncounted: list[WholeRequest] = []
        self._owes: list[Following] = []
        self._lessons: list[Lesson] = []
        self._ended = 0  # in this turn
        self._ended_many = False  # in the turn before

    def answer(self, ending: Ending, following: Following | None = None) -> None:
        """End a request whose whole answer is waited for: now, or with others at the end of this turn.

        `following` is concluded after it, and before another request is let in.
        """
        if following is not None:
            self._owes.append(following)
        if self._ended or self._ended_many:
            self.add(ending)
            return
        self._ended = 1
        try:
            self._write_one(ending.record)
            self._send(ending)
        finally:  # else this turn would have no end
            self.soon(self._at_turns_end)

    def add(self, ending: Ending) -> None:
        """End a request at the end of this turn."""
        if not self._ended:
            self.soon(self._at_turns_end)
        self._ended += 1
        self._unwritten.append(ending.record)
        self._waiting.append(ending)

    def once_sent(self, sending: Sending) -> None:
        """Have a request get ready for its reply at the end of this turn, when it is on its way."""
        self._sent.append(sending)
        self.soon(self._once_sent)

    def _prepare_sent(self) -> None:
        sent, self._sent = self._sent, []
        for sending in sent:
            try:
                sending.prepare()
            except Exception:  # one request's fault must not keep the others from it
                _log.exception("a request could not get ready for its reply")

    def soon(self, do: Callable[[], None]) -> None:
        """Have something done at the end of this turn."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        loop.call_soon(do)

    def learn(self, lesson: Lesson) -> None:
        """Keep a lesson of a request that ends in this turn for after its answer."""
        self._lessons.append(lesson)

    def close(self) -> None:
        """Write what is not written yet and charge what is not charged: for whoever takes the counters down together
        with the journal's end."""
        self._write()
        self.conclude()

    def _write_one(self, record: WholeRequest) -> None:
        self._uncounted.append(record)
        try:
            self._recorder.record_one(record)
        except Exception:  # the answer is a good one
            _log.exception("a record could not be written")

    def _write(self) -> None:
        records, self._unwritten = self._unwritten, []
        try:
            if records:
                self._uncounted += records
                self._recorder.record_whole(records)
        except Exception:  # the answers are good ones
            _log.exception("records could not be written", extra={"requests": len(records)})

    def _end_turn(self) -> None:
        self._ended_many, self._ended = self._ended > 1, 0
        waiting, self._waiting = self._waiting, []
        if not waiting:  # what was sent has left
            self._follow_up()
            return
        self._write()
        for ending in waiting:
            self._send(ending)
        self.soon(self._afterwards)

    def conclude(self) -> None:
        """Charge those that have ended, answered or about to be, and give back what they held."""
        if not self._owes:
            return
        owes, self._owes = self._owes, []
        for following in owes:
            try:
                following.conclude()
            except Exception:  # one request's fault must not leave the others uncharged
                _log.exception("a request could not be concluded")

    def _send(self, ending: Ending) -> None:
        try:
            ending.send()
        except Exception:  # one connection's fault must not keep the others' answers
            _log.exception("an answer could not be sent")

    def _follow_up(self) -> None:
        """Charge, count and learn, now that what was sent has left."""
        self.conclude()
        records, self._uncounted = self._uncounted, []
        lessons, self._lessons = self._lessons, []
        try:
            self._recorder.count_whole(records)
            for lesson in lessons:
                lesson.teach()
            self._prepare_next()
        except Exception:  # what is on disk is not written twice, and the answers are good ones
            _log.exception("requests could not be counted", extra={"requests": len(records)})
