"""End requests of the same event loop turn together: one write for all their records, then their answers."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence

from backends.http_client.http_connection import ReplyEndListener
from backends.processes.native import mypyc_attr

_log = logging.getLogger(__name__)


@mypyc_attr(allow_interpreted_subclasses=True)
class Ending(ReplyEndListener):
    """A request without a task, from the call of its target to its end."""

    __slots__ = ()

    @abstractmethod
    def prepare(self) -> None:
        """Prepare the reply after the request was sent: what is written within a turn is sent at the turn's end."""

    @abstractmethod
    def send(self) -> None:
        """Send the end of the answer. The record has been written."""

    @abstractmethod
    def follow_up(self) -> None:
        """Update metrics and estimates. No client waits for this."""


class Endings:
    """Write requests' records, send their answers, and then run the deferred work.

    Requests that end in the same turn of the event loop share one write, which costs about a twentieth of an answer
    however many records it has. No client waits longer for it, because data written within a turn is sent at its end
    anyway. If the previous turn had a single request, a complete answer is sent at once instead of at the end of the
    turn.
    """

    def __init__(self, write: Callable[[Sequence[Ending]], None], prepare_next: Callable[[], None]) -> None:
        """`write` writes records; `prepare_next` does work that later requests would otherwise wait for."""
        self._write_all = write
        self._prepare_next = prepare_next
        self._at_turns_end: Callable[[], None] = self._end_turn
        self._afterwards: Callable[[], None] = self._follow_up
        self._once_sent: Callable[[], None] = self._prepare_sent
        self._sent: list[Ending] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[Ending] = []
        self._unwritten: list[Ending] = []
        self._written: list[Ending] = []
        self._ended = 0  # in this turn
        self._ended_many = False  # in the turn before

    def answer(self, ending: Ending) -> None:
        """End a request with a complete (not streamed) answer: now, or together with others at the end of this turn."""
        self._ended += 1
        if self._ended > 1 or self._ended_many or self._waiting:
            self._add(ending)
            return
        self.soon(self._at_turns_end)
        self._write([ending])
        self._send(ending)

    def add(self, ending: Ending) -> None:
        """End a request at the end of this turn."""
        self._ended += 1
        self._add(ending)

    def _add(self, ending: Ending) -> None:
        if self._ended == 1:
            self.soon(self._at_turns_end)
        self._waiting.append(ending)
        self._unwritten.append(ending)

    def once_sent(self, sent: Ending) -> None:
        """Call `prepare` of a request that was just sent, at the end of this turn."""
        if not self._sent:
            self.soon(self._once_sent)
        self._sent.append(sent)

    def _prepare_sent(self) -> None:
        sent, self._sent = self._sent, []
        for one in sent:
            try:
                one.prepare()
            except Exception:  # one request's fault must not keep the others from it
                _log.exception("a request could not prepare its reply")

    def soon(self, do: Callable[[], None]) -> None:
        """Call a function at the end of this turn of the event loop."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        loop.call_soon(do)

    def close(self) -> None:
        """Write the records that are not written yet. Called at shutdown, before counters are saved with the journal's
        position.
        """
        unwritten, self._unwritten = self._unwritten, []
        self._write(unwritten)

    def _write(self, endings: list[Ending]) -> None:
        try:
            if endings:
                self._written += endings
                self._write_all(endings)
        except Exception:  # the answers are good ones
            _log.exception("records could not be written", extra={"requests": len(endings)})

    def _end_turn(self) -> None:
        self._ended_many, self._ended = self._ended > 1, 0
        waiting, self._waiting = self._waiting, []
        if not waiting:  # what was sent has left
            self._follow_up()
            return
        self.close()
        for ending in waiting:
            self._send(ending)
        self.soon(self._afterwards)

    def _send(self, ending: Ending) -> None:
        try:
            ending.send()
        except Exception:  # one connection's fault must not keep the others' answers
            _log.exception("an answer could not be sent")

    def _follow_up(self) -> None:
        """Run the deferred work of requests whose answers have been sent."""
        written, self._written = self._written, []
        for ending in written:
            try:
                ending.follow_up()
            except Exception:  # what is on disk is not written twice, and the answers are good ones
                _log.exception("a request could not be counted")
        try:
            self._prepare_next()
        except Exception:
            _log.exception("the next requests could not be prepared for")
