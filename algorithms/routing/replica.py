"""One replica's state for routing: requests in progress, measured speed, and load by others.

Times are monotonic nanoseconds, passed in.
"""

from collections.abc import Sequence
from typing import Final

from algorithms.routing.pace import DecodePace, PrefillPace

_FIRST_PAUSE_NS: Final = 1_000_000_000
_LONGEST_PAUSE_NS: Final = 30_000_000_000
_LEAST_PREFILL_NS: Final = 1_000_000.0  # minimum duration of a prefill
NEVER_NS: Final = 1 << 62
AWAY_NS: Final = 1e15  # cost of a replica that should be avoided
# Weight, in tokens, of the known pace against a prompt that is late: a short late prompt says little about the others.
_DOUBT_TOKENS: Final = 1_000.0
_KEPT_LATENCY_NS: Final = 10e9  # half-life of a peak (Finagle's default)
# Cost of an unstreamed answer in progress, as a share of such an answer's time. Small compared with prefills and
# slopes, so that it decides only if these are unknown.
_WHOLE_SHARE: Final = 0.02
_ANSWER_TOKENS: Final = 400  # tokens that an unstreamed answer counts as in a pace: about the last hundred count
_LEAST_PROMPT: Final = 64  # minimum prompt, in tokens, for which an unstreamed answer's time bounds the prefill pace


class Room:
    """An engine's reported state: its maximum number of sequences, and the requests there from other clients."""

    __slots__ = ("max_sequences", "others")

    def __init__(self, max_sequences: int | None = None, others: int = 0) -> None:
        self.max_sequences = max_sequences
        self.others = others


NO_ROOM_KNOWN: Final = Room()


class RoutedRequest:
    """A request at a replica from its start to its end, with its predicted work."""

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
        """`is_blind`: the answer is not streamed, so that the end of its prefill is not seen."""
        self.began_ns = began_ns
        self.tokens = tokens
        self.uncached = max(tokens - cached, 1)  # tokens to compute; the last token is always computed
        self.computed: int | None = None  # tokens computed, as the replica reports
        self.keys = keys
        self.expected: tuple[int, Sequence[int]] | None = None  # the replica's bit, and the blocks to be computed
        self.is_assumed = False  # whether these count as cached already, because the replica sends no events
        self.first_ns: int | None = None
        self.is_ended = False
        self.is_blind = is_blind


class SharedPaces:
    """Measured speeds over a whole pool: of prefill, of unstreamed answers, and of decoding."""

    __slots__ = ("decode", "prefill", "whole")

    def __init__(self) -> None:
        self.prefill = PrefillPace()
        self.whole = PrefillPace()
        self.decode = DecodePace()


class Replica:
    """One replica's state. `bit` identifies it in the prefix index."""

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
        self.whole = PrefillPace(self._shared_whole)  # of unstreamed answers, each counted as _ANSWER_TOKENS
        self.slowness = 1.0  # its time per work, relative to the pool's
        self.prefill_ns = self.pace.ns_per_token  # per token, as of the last event
        self.decode = DecodePace(None if shared is None else shared.decode)
        self._room = NO_ROOM_KNOWN
        self._is_odd = False  # whether there may be waits other than for prefills
        self.is_busy = False  # whether a request may cost more than computing its prompt
        self.is_plain = False  # whether it is busy only with prefills and answers in progress
        self.decode_ns = 0.0  # how much slower each token of a further answer would be
        self.running = 0  # this gateway's requests in progress
        self.prefilling: dict[RoutedRequest, None] = {}  # requests without a first token, oldest first
        self.queued_tokens = 0  # uncached tokens of these
        self.is_exact = False  # whether it reports its cached blocks
        self.is_known_away = False
        self.failures = 0  # in a row
        self.suspect_until_ns = 0
        self.blind_ns = 0.0  # predicted end of the prefills of unstreamed requests
        self.blind_running = 0  # unstreamed requests in progress
        self.blind_tokens = 0  # uncached tokens of these
        self.due_ns = 0.0  # predicted end of the oldest prefill
        self.free_ns = 0.0  # predicted end of all prefills
        self.late_rate = 0.0  # how much longer the others take for each nanosecond that the oldest is late
        self.late_from_ns = 0.0
        self._pause_ns = 0
        self._progress_ns = 0  # time of the last first token
        self._mean_ns = 0.0  # mean duration of a request
        self._latency_ns = 0.0
        self._latency_at_ns = 0

    # read by policies

    def wait_ns(self, now_ns: int) -> float:
        """Return the predicted wait of a request that arrives now, until its own prefill starts."""
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
        """Return the predicted wait of a request plus how much slower its answer would come; very high for suspect
        replicas.
        """
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
        """Return the wait if the oldest prefill is overdue, which suggests that the others will be late too."""
        return self.late_rate * (now_ns - self.late_from_ns) + now_ns - self.due_ns

    def is_suspect(self, now_ns: int) -> bool:
        """Return whether it is away, or has failed recently and should be avoided."""
        return now_ns < self.suspect_until_ns

    def latency_ns(self, now_ns: int) -> float:
        """Return the decayed peak of recent latencies; 0 if unknown."""
        past = now_ns - self._latency_at_ns
        return self._latency_ns * 0.5 ** (past / _KEPT_LATENCY_NS) if past > 0 else self._latency_ns

    @property
    def room(self) -> Room:
        """Return the engine's reported state."""
        return self._room

    # events

    def take_room(self, room: Room) -> None:
        """Record the engine's reported state."""
        self._room = room
        self._settle()

    def refresh(self, now_ns: int) -> None:
        """Decay old measurements."""
        self.pace.refresh(now_ns)
        self.whole.refresh(now_ns)
        self._compare()
        self.decode.refresh()
        self._is_odd = self.blind_running > 0 or self.blind_ns > now_ns or now_ns < self.suspect_until_ns
        self._settle()

    def status(self, now_ns: int) -> dict[str, object]:
        """Return the replica's state for GET /ready."""
        return {
            "running": self.running,
            "waiting_for_prompts": len(self.prefilling),
            "predicted_wait_ms": round(self.wait_ns(now_ns) / 1e6, 1),
            "prefill_tokens_per_second": round(1e9 / self.prefill_ns),
            "cache": "exact" if self.is_exact else "assumed",
            "is_suspect": self.is_suspect(now_ns),
        }

    def begin(self, routed: RoutedRequest, now_ns: int) -> None:
        """Record that a request is sent now."""
        self.running += 1
        if routed.is_blind:
            self.blind_running += 1
            self.blind_tokens += routed.uncached
            self.blind_ns = max(self.blind_ns, float(now_ns)) + routed.uncached * self.prefill_ns
            self._is_odd = True
            self._settle()
            return
        self.prefilling[routed] = None
        self.queued_tokens += routed.uncached
        self._settle()

    def first_token(self, routed: RoutedRequest, now_ns: int) -> None:
        """Record that a request's prefill has ended."""
        if routed not in self.prefilling:
            return
        del self.prefilling[routed]
        self.queued_tokens -= routed.uncached
        routed.first_ns = now_ns
        began = max(routed.began_ns, self._progress_ns)
        self._progress_ns = now_ns
        computed = routed.uncached if routed.computed is None else max(routed.computed, 1)
        self.pace.note(computed, max(now_ns - began, 0), now_ns)
        self._compare()
        self.failures = self._pause_ns = 0
        if not self.is_known_away:
            self.suspect_until_ns = 0
        self._settle()
        self._note_latency(now_ns - routed.began_ns, now_ns)

    def end(
        self, routed: RoutedRequest, now_ns: int, *, output_tokens: int | None = None, has_failed: bool = False
    ) -> None:
        """Record the end of a request. `has_failed`: by the replica's fault."""
        if routed.is_ended:
            return
        routed.is_ended = True
        beside = self.running
        self.running -= 1
        if routed in self.prefilling:
            del self.prefilling[routed]
            self.queued_tokens -= routed.uncached
        if routed.is_blind:  # the wait is at most that for the requests in progress
            self.blind_running -= 1
            self.blind_tokens -= routed.uncached
            self.blind_ns = min(self.blind_ns, now_ns + self.blind_tokens * self.prefill_ns)
        if has_failed:
            self._fail(now_ns)
            return
        took = now_ns - routed.began_ns
        if routed.is_blind:
            self.failures = self._pause_ns = 0
            self._note_latency(took, now_ns)
            self.whole.note(_ANSWER_TOKENS, took, now_ns)
            self._compare()
            if routed.uncached >= _LEAST_PROMPT:
                self.pace.note_most(routed.uncached, took)
            if output_tokens:
                self.decode.note(beside, took / output_tokens)
        self._mean_ns += 0.1 * (took - self._mean_ns) if self._mean_ns else took
        if routed.first_ns is not None and output_tokens is not None and output_tokens > 1:
            self.decode.note(beside, (now_ns - routed.first_ns) / (output_tokens - 1))
        self._settle()

    def go_away(self, is_away: bool) -> None:
        """Mark the replica as away, or as available again."""
        self.is_known_away = is_away
        self.suspect_until_ns = NEVER_NS if is_away else 0
        self._is_odd = True
        self._settle()

    def _compare(self) -> None:
        computes, answers = self.pace.slowness, self.whole.slowness
        self.slowness = computes if abs(computes - 1.0) > abs(answers - 1.0) else answers

    def _settle(self) -> None:
        """Compute when the oldest prefill and all of them should end, at the current pace."""
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
        if now_ns >= self.suspect_until_ns:  # concurrent failures count once
            self._pause_ns = min(2 * self._pause_ns or _FIRST_PAUSE_NS, _LONGEST_PAUSE_NS)
            self.suspect_until_ns = now_ns + self._pause_ns
        self._is_odd = True
        self._settle()

    def _seat_wait_ns(self, room: Room) -> float:
        """Return the predicted wait for a free sequence if the engine has none; others' requests count with this mean
        duration.
        """
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
