"""Requests that end in one turn of the event loop: their records are written together, then their answers go out."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence

from backends.http_client.asker import Asker
from backends.processes.native import mypyc_attr

_log = logging.getLogger(__name__)


@mypyc_attr(allow_interpreted_subclasses=True)
class Ending(Asker):
    """A request that was sent on without a task, up to its end."""

    __slots__ = ()

    @abstractmethod
    def prepare(self) -> None:
        """Get ready for the reply, once the request is on its way: what is sent in a turn leaves at its end."""

    @abstractmethod
    def send(self) -> None:
        """Send the answer's end. Its record is written."""

    @abstractmethod
    def follow_up(self) -> None:
        """Count it, and learn from it: nobody waits for that."""


class Endings:
    """Writes a request's record and then sends its answer; what nobody waits for follows.

    Requests that end before the loop looks at its sockets again share one write: on disk it costs a twentieth of an
    answer and serves as many as there are. Nobody waits longer for it, since what is sent within a turn leaves at its
    end in any case. While turns have one ending each, as where requests are few, a whole answer is not put off to the
    turn's end.
    """

    def __init__(self, write: Callable[[Sequence[Ending]], None], prepare_next: Callable[[], None]) -> None:
        """`write` writes records; `prepare_next` does what requests that follow would else have to wait for."""
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
        """End a request whose whole answer is waited for: now, or with others at the end of this turn."""
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
        """Have a request prepared at the end of this turn: it is on its way."""
        self._sent.append(sent)
        self.soon(self._once_sent)

    def _prepare_sent(self) -> None:
        sent, self._sent = self._sent, []
        for one in sent:
            try:
                one.prepare()
            except Exception:  # one request's fault must not keep the others from it
                _log.exception("a request could not get ready for its reply")

    def soon(self, do: Callable[[], None]) -> None:
        """Have something done at the end of this turn."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        loop.call_soon(do)

    def close(self) -> None:
        """Write what is not written yet: at shutdown, when counters are saved with the end of the journal."""
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
        """Count and learn, now that what was sent has left."""
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
