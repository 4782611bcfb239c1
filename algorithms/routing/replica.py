"""One replica as routing knows it: what we have sent it and is not done, how fast it works, what others do there.

Times are nanoseconds, monotonic, handed in.
"""

from collections.abc import Sequence
from typing import Final

from algorithms.routing.pace import DecodePace, PrefillPace

_FIRST_PAUSE_NS: Final = 1_000_000_000
_LONGEST_PAUSE_NS: Final = 30_000_000_000
_LEAST_PREFILL_NS: Final = 1_000_000.0  # a request takes some time, whatever its length
NEVER_NS: Final = 1 << 62
AWAY_NS: Final = 1e15  # the cost of asking whom it is best not to ask
# What a late prompt says of the rest is weighed against so many tokens at the known pace: of a short one, nothing.
_DOUBT_TOKENS: Final = 1_000.0
_KEPT_LATENCY_NS: Final = 10e9  # the decay of a peak (Finagle's default)
# What a whole answer under way counts, as a share of such an answer's time. It is small beside what is known of prompts
# and of growing gaps, and decides where these say nothing.
_WHOLE_SHARE: Final = 0.02
_ANSWER_TOKENS: Final = 400  # as which a whole answer counts in a pace: the last hundred are remembered
_LEAST_PROMPT: Final = 64  # tokens, from which on a whole answer says something of its prompt's pace


class Room:
    """What a replica's engine says of itself: its seats, and how many requests of others than this gateway it has."""

    __slots__ = ("max_sequences", "others")

    def __init__(self, max_sequences: int | None = None, others: int = 0) -> None:
        self.max_sequences = max_sequences
        self.others = others


NO_ROOM_KNOWN: Final = Room()


class Hold:
    """A request at a replica: what it was predicted to cost, until it has ended."""

    __slots__ = (
        "began_ns",
        "computed",
        "expected",
        "first_ns",
        "is_assumed",
        "is_blind",
        "is_ended",
        "keys",
        "tokens",
        "uncached",
    )

    def __init__(
        self, began_ns: int, tokens: int, cached: int, keys: Sequence[int] = (), *, is_blind: bool = False
    ) -> None:
        """`is_blind`: its answer comes whole, so that nobody sees when its prompt is computed."""
        self.began_ns = began_ns
        self.tokens = tokens
        self.uncached = max(tokens - cached, 1)  # to compute; an engine computes the last token always
        self.computed: int | None = None  # as the replica counted it
        self.keys = keys
        self.expected: tuple[int, Sequence[int]] | None = None  # the replica's bit, and the blocks it is to compute
        self.is_assumed = False  # they count as computed already, for the replica does not tell
        self.first_ns: int | None = None
        self.is_ended = False
        self.is_blind = is_blind


class SharedPaces:
    """The paces of a pool as a whole."""

    __slots__ = ("decode", "prefill", "whole")

    def __init__(self) -> None:
        self.prefill = PrefillPace()
        self.whole = PrefillPace()
        self.decode = DecodePace()


class Replica:
    """One replica. `bit` stands for it in the prefix index."""

    __slots__ = (
        "_is_odd",
        "_shared_whole",
        "_latency_at_ns",
        "_latency_ns",
        "_mean_ns",
        "_pause_ns",
        "_progress_ns",
        "_room",
        "bit",
        "blind_ns",
        "blind_running",
        "blind_tokens",
        "decode",
        "decode_ns",
        "due_ns",
        "failures",
        "free_ns",
        "id",
        "is_busy",
        "is_exact",
        "is_known_away",
        "is_plain",
        "late_from_ns",
        "late_rate",
        "pace",
        "prefill_ns",
        "prefilling",
        "queued_tokens",
        "running",
        "slowness",
        "suspect_until_ns",
        "weight",
        "whole",
    )

    def __init__(self, name: str, bit: int, weight: int = 1, shared: SharedPaces | None = None) -> None:
        self.id = name
        self.bit = bit
        self.weight = weight
        self.pace = PrefillPace(None if shared is None else shared.prefill)
        self._shared_whole = PrefillPace() if shared is None else shared.whole
        self.whole = PrefillPace(self._shared_whole)  # of answers that nobody sees grow, each as so many tokens
        self.slowness = 1.0  # the time it takes for its work, relative to the pool's
        self.prefill_ns = self.pace.ns_per_token  # a token's, as of the last event
        self.decode = DecodePace(None if shared is None else shared.decode)
        self._room = NO_ROOM_KNOWN
        self._is_odd = False  # something beside its prompts may have to be waited for
        self.is_busy = False  # it may cost more than computing the prompt
        self.is_plain = False  # and that is prompts before it, and answers beside it
        self.decode_ns = 0.0  # by how much a further answer would slow each token, all that run together
        self.running = 0  # requests of ours, as long as they are not done
        self.prefilling: dict[Hold, None] = {}  # those whose first token has not come, oldest first
        self.queued_tokens = 0  # of them, uncached
        self.is_exact = False  # it tells what its cache holds
        self.is_known_away = False
        self.failures = 0  # in a row
        self.suspect_until_ns = 0
        self.blind_ns = 0.0  # when the prompts should be computed of which nobody sees it
        self.blind_running = 0  # of these requests, in progress
        self.blind_tokens = 0  # of these requests that are in progress, uncached
        self.due_ns = 0.0  # when the oldest prompt should be computed
        self.free_ns = 0.0  # and when all should be
        self.late_rate = 0.0  # by how much the rest takes longer for each nanosecond that the oldest is late
        self.late_from_ns = 0.0
        self._pause_ns = 0
        self._progress_ns = 0  # when it last gave a first token
        self._mean_ns = 0.0  # of a request, from its beginning to its end
        self._latency_ns = 0.0
        self._latency_at_ns = 0

    # what policies ask

    def wait_ns(self, now_ns: int) -> float:
        """Predict how long a request that came now would wait until its own prompt is computed."""
        wait = 0.0
        if self.prefilling:
            wait = self.free_ns - now_ns if now_ns <= self.due_ns else self._late_ns(now_ns)
        if self._is_odd:
            if self.blind_ns > now_ns:
                wait += self.blind_ns - now_ns
            if self._room is not NO_ROOM_KNOWN:
                wait += self._seat_wait_ns(self._room)
        return wait

    def load_ns(self, now_ns: float, output_tokens: float) -> float:
        """Predict what a request would wait, and how much slower its answer would come; suspects are far away."""
        load = 0.0
        if self.prefilling:
            load = self.free_ns - now_ns if now_ns <= self.due_ns else self._late_ns(now_ns)
        if self.decode_ns:
            load += output_tokens * self.decode_ns
        if self._is_odd:
            if self.blind_ns > now_ns:
                load += self.blind_ns - now_ns
            if self.blind_running:
                load += self.blind_running * _WHOLE_SHARE * _ANSWER_TOKENS * self._shared_whole.ns_per_token
            if self._room is not NO_ROOM_KNOWN:
                load += self._seat_wait_ns(self._room)
            if now_ns < self.suspect_until_ns:
                load += AWAY_NS
        return load

    def _late_ns(self, now_ns: float) -> float:
        """Return the wait where the oldest prompt is overdue: so will the rest be, and by how much its delay says."""
        return self.late_rate * (now_ns - self.late_from_ns) + now_ns - self.due_ns

    def is_suspect(self, now_ns: int) -> bool:
        """Return whether it is away, or has just failed and is best left alone."""
        return now_ns < self.suspect_until_ns

    def latency_ns(self, now_ns: int) -> float:
        """Return the peak of recent latencies, decayed: 0 if nothing is known."""
        past = now_ns - self._latency_at_ns
        return self._latency_ns * 0.5 ** (past / _KEPT_LATENCY_NS) if past > 0 else self._latency_ns

    @property
    def room(self) -> Room:
        """Return what its engine says of itself."""
        return self._room

    # what happens

    def take_room(self, room: Room) -> None:
        """Record the engine's reported capacity."""
        self._room = room
        self._settle()

    def refresh(self, now_ns: int) -> None:
        """Let what was measured long ago count for less."""
        self.pace.refresh(now_ns)
        self.whole.refresh(now_ns)
        self._compare()
        self.decode.refresh()
        self._is_odd = self.blind_running > 0 or self.blind_ns > now_ns or now_ns < self.suspect_until_ns
        self._settle()

    def status(self, now_ns: int) -> dict[str, object]:
        """Return the state that GET /ready shows."""
        return {
            "running": self.running,
            "waiting_for_prompts": len(self.prefilling),
            "predicted_wait_ms": round(self.wait_ns(now_ns) / 1e6, 1),
            "prefill_tokens_per_second": round(1e9 / self.prefill_ns),
            "cache": "exact" if self.is_exact else "assumed",
            "is_suspect": self.is_suspect(now_ns),
        }

    def begin(self, hold: Hold, now_ns: int) -> None:
        """Count a request that is sent now."""
        self.running += 1
        if hold.is_blind:
            self.blind_running += 1
            self.blind_tokens += hold.uncached
            self.blind_ns = max(self.blind_ns, float(now_ns)) + hold.uncached * self.prefill_ns
            self._is_odd = True
            self._settle()
            return
        self.prefilling[hold] = None
        self.queued_tokens += hold.uncached
        self._settle()

    def first_token(self, hold: Hold, now_ns: int) -> None:
        """Record that a request's prompt is computed."""
        if hold not in self.prefilling:
            return
        del self.prefilling[hold]
        self.queued_tokens -= hold.uncached
        hold.first_ns = now_ns
        began = max(hold.began_ns, self._progress_ns)
        self._progress_ns = now_ns
        computed = hold.uncached if hold.computed is None else max(hold.computed, 1)
        self.pace.note(computed, max(now_ns - began, 0), now_ns)
        self._compare()
        self.failures = self._pause_ns = 0
        if not self.is_known_away:
            self.suspect_until_ns = 0
        self._settle()
        self._note_latency(now_ns - hold.began_ns, now_ns)

    def end(self, hold: Hold, now_ns: int, *, output_tokens: int | None = None, has_failed: bool = False) -> None:
        """Record that a request is done. `has_failed`: by the replica's fault."""
        if hold.is_ended:
            return
        hold.is_ended = True
        beside = self.running
        self.running -= 1
        if hold in self.prefilling:
            del self.prefilling[hold]
            self.queued_tokens -= hold.uncached
        if hold.is_blind:  # no more is waited for than what is in progress
            self.blind_running -= 1
            self.blind_tokens -= hold.uncached
            self.blind_ns = min(self.blind_ns, now_ns + self.blind_tokens * self.prefill_ns)
        if has_failed:
            self._fail(now_ns)
            return
        took = now_ns - hold.began_ns
        if hold.is_blind:
            self.failures = self._pause_ns = 0
            self._note_latency(took, now_ns)
            self.whole.note(_ANSWER_TOKENS, took, now_ns)
            self._compare()
            if hold.uncached >= _LEAST_PROMPT:
                self.pace.note_most(hold.uncached, took)
            if output_tokens:
                self.decode.note(beside, took / output_tokens)
        self._mean_ns += 0.1 * (took - self._mean_ns) if self._mean_ns else took
        if hold.first_ns is not None and output_tokens is not None and output_tokens > 1:
            self.decode.note(beside, (now_ns - hold.first_ns) / (output_tokens - 1))
        self._settle()

    def go_away(self, is_away: bool) -> None:
        """Be known to be away, or to be there again."""
        self.is_known_away = is_away
        self.suspect_until_ns = NEVER_NS if is_away else 0
        self._is_odd = True
        self._settle()

    def _compare(self) -> None:
        computes, answers = self.pace.slowness, self.whole.slowness
        self.slowness = computes if abs(computes - 1.0) > abs(answers - 1.0) else answers

    def _settle(self) -> None:
        """Work out when the oldest prompt is due, and when all are computed, at the present pace."""
        pace = self.prefill_ns = self.pace.ns_per_token
        self.decode_ns = self.decode.slope_ns * self.running
        if self._room is not NO_ROOM_KNOWN:
            self._is_odd = True
        self.is_busy = bool(self.prefilling) or self._is_odd or self.decode_ns > 0
        self.is_plain = bool(self.prefilling) and not self._is_odd
        if not self.prefilling:
            return
        head = next(iter(self.prefilling))
        expected = head.uncached * pace
        if expected < _LEAST_PREFILL_NS:
            expected = _LEAST_PREFILL_NS
        head_ns = head.began_ns if head.began_ns > self._progress_ns else self._progress_ns
        self.due_ns = head_ns + expected
        rest = (self.queued_tokens - head.uncached) * pace
        self.free_ns = self.due_ns + rest
        doubt = _DOUBT_TOKENS * pace
        self.late_rate = rest / (expected + doubt)
        self.late_from_ns = head_ns - doubt

    def _fail(self, now_ns: int) -> None:
        self.failures += 1
        if now_ns >= self.suspect_until_ns:  # those that were in progress when it went count once
            self._pause_ns = min(2 * self._pause_ns or _FIRST_PAUSE_NS, _LONGEST_PAUSE_NS)
            self.suspect_until_ns = now_ns + self._pause_ns
        self._is_odd = True
        self._settle()

    def _seat_wait_ns(self, room: Room) -> float:
        """Return the time until a seat is free, where the engine has none; others' prompts count as our mean ones."""
        wait = 0.0
        if room.max_sequences is not None:
            excess = self.running + room.others - room.max_sequences
            if excess >= 0:
                wait = (excess + 1) * self._mean_ns / room.max_sequences
        return wait

    def _note_latency(self, took_ns: int, now_ns: int) -> None:
        known = self.latency_ns(now_ns)
        self._latency_ns = took_ns if took_ns > known else known + 0.1 * (took_ns - known)
        self._latency_at_ns = now_ns
