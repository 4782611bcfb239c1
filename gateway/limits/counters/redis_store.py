"""Counters shared by several gateways through Redis: each answers from its leases, and requests more in advance."""

import asyncio
import logging
import math
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from backends.counters.address import CountersAddress
from backends.counters.batch_sender import Answer, BatchSender
from backends.counters.connection import CountersConnection
from backends.counters.server_clock import ServerClock
from backends.processes.running_time import RunningTimeout
from contracts.errors import ConfigurationError
from contracts.rules.limits import BudgetSpec, LimitSpec, Rule
from gateway.limits.budgets.budget import OnSettled, OnSettledLate
from gateway.limits.counters.base import Counter, Line, Shortage
from gateway.limits.counters.lease_commands import SeekCommand, SeekResult, SyncCommand
from gateway.limits.counters.lease_connection import LeaseConnection, LeasedAmount
from gateway.limits.counters.leased_escrow import AnyLeasedEscrow, LeasedBudget, LeasedConcurrency, LeasedConversation
from gateway.limits.counters.leased_sliding import LeasedSliding

_log = logging.getLogger(__name__)

_Leased: TypeAlias = LeasedSliding | AnyLeasedEscrow
_Name: TypeAlias = tuple[str, str]  # rule id, subject

_SECOND_NS: Final = 1_000_000_000
_TURN_SECONDS: Final = 0.05
_ROUND_SECONDS: Final = 5.0  # period in which every counter is checked once, to forget idle ones
_MOST_A_TURN: Final = 500
_GENERATION_NS: Final = 600 * _SECOND_NS
_UNOWNED: Final = 3  # references to a counter that only the store holds: its own, the sweep's, getrefcount's
_BEATS_PER_LIFE: Final = 5
_MOST_TRIES: Final = 3  # attempts if a grant ended before the request could take it
# Times the timeout, for a Redis that answers: requests that come together wait for several batches. The batch that a
# silent Redis does not answer ends the wait after one.
_LONGEST_WAIT: Final = 4
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:#-]{0,99}")  # HOST:PORT#WORKER if no name is set
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_AWAY: Final = "the shared counters are unreachable"
_LATE: Final = "the shared counters did not answer in time"
_RECONNECT_SECONDS: Final = 1.0
# For this long it may be late before that is reported: until then requests only go on alone. Counted in turns of this
# event loop, not by the clock: what holds this process up is no fault of Redis'.
_SILENT_SECONDS: Final = 2.0  # with 2 s until the next heartbeat of an idle gateway, below 5
_LEASES_LOOKED_AT_SECONDS: Final = 1.0  # while Redis is unreachable
_LOST: Final = "the shared counters have lost their data; all gateways report their counts again"


class RedisStore:
    """Counters by rule and subject. The counts are in Redis; this object holds this gateway's part.

    A counter that a caller still references is not forgotten; `generation` changes every ten minutes while there are
    such counters, so that callers release them.
    """

    is_shared = True

    def __init__(
        self,
        address: CountersAddress,
        gateway_name: str,
        *,
        on_settled: OnSettled | None = None,
        on_settled_late: OnSettledLate | None = None,
        expected_gateways: int = 1,
        expiry_seconds: float = 10.0,
        timeout_seconds: float = 0.25,
        namespace: str = "counters",
        clock: ServerClock | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Accept Redis' address and this gateway's name, which must be unique among running gateways.

        `expected_gateways`: among how many gateways the limits are divided if Redis is unreachable and has not yet
        reported how many are running. `expiry_seconds`: time since its last message after which a gateway loses
        everything that Redis granted to it. `timeout_seconds`: the longest that a request waits for a Redis that does
        not answer; it waits up to four times as long for one that is slow. Only time in which this process runs is
        counted.

        Connects at first use. Raises ConfigurationError if an argument is unusable.
        """
        if not _NAME.fullmatch(gateway_name):
            raise ConfigurationError(
                f"the gateway's name {gateway_name!r} is invalid; "
                "use up to 100 letters, digits, '.', '_', ':', '#' or '-' in TOLLKEEPER_GATEWAY_NAME"
            )
        if not _NAMESPACE.fullmatch(namespace):
            raise ConfigurationError(f"the namespace {namespace!r} is invalid; use up to 63 letters and digits")
        if not 1 <= expiry_seconds <= 3600:
            raise ConfigurationError(f"a gateway expires after 1 to 3600 seconds, not {expiry_seconds:g}")
        if not 0.01 <= timeout_seconds <= expiry_seconds / 4:
            raise ConfigurationError(
                f"Redis must answer within 0.01 to {expiry_seconds / 4:g} seconds (a quarter of the expiry), "
                f"not {timeout_seconds:g}"
            )
        self.generation = 0
        self._name = gateway_name
        self._on_settled, self._on_settled_late = on_settled, on_settled_late
        self._expiry_seconds, self._timeout_seconds = expiry_seconds, timeout_seconds
        self._clock = clock or ServerClock()
        self._wall_ns = wall_ns
        self._link = LeaseConnection(self._clock, prefix := f"tollkeeper:{{{namespace}}}:")
        self._link.gateways = max(expected_gateways, 1)
        self._address = address
        connection = CountersConnection(address, timeout_seconds, namespace)
        self._sender = BatchSender(
            connection, gateway_name, self._clock, self, prefix=prefix, expiry_seconds=expiry_seconds
        )
        self._counters: dict[_Name, _Leased] = {}
        self._to_visit: deque[_Name] = deque()
        self._idle_in_hand = 0
        self._generation_moved_ns = wall_ns()
        self._seekers: set[SeekCommand] = set()
        self._away_since_ns: int | None = None  # Unix; since when this gateway continues alone
        self._silent_turns = 0  # since then
        self._is_reported_away = False
        self._away_reason = ""
        self._away_mono_ns = 0
        self._leases_seen_ns = 0
        self._has_leases = True  # as of the last check
        self._seeks = 0

    async def start(self) -> None:
        """Join the other gateways. If Redis is unreachable, this is done later, in the background.

        Raises ConfigurationError if Redis counts for another installation, or a running gateway has this name. A killed
        gateway counts as running until it expires; this waits until then.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._expiry_seconds + _RECONNECT_SECONDS
        while not self._sender.is_joined:
            self._sender.beat()
            await asyncio.sleep(0.01)
            if self._sender.is_foreign:
                raise ConfigurationError(self._away_reason)
            if self._away_since_ns is not None and not self._sender.is_name_taken:
                return
            if loop.time() > deadline:
                raise ConfigurationError(self._away_reason or f"Redis at {self._address.shown} does not answer")

    def open(self, rule: Rule, subject: str) -> Counter:
        """Return the counter of a rule and a subject: the same object as long as it is not idle.

        If the rule's amount or period has changed, the count continues; with another metric or window it is new. Raises
        ConfigurationError if a budget's time zone is unknown.
        """
        counter = self._counters.get((rule.id, subject))
        if counter is not None and counter.rule is rule:
            return counter
        if counter is None or not _adopt(counter, rule, self._wall_ns()):
            if counter is None:
                self._to_visit.append((rule.id, subject))
            counter = self._counters[rule.id, subject] = self._made(rule, subject)
        return counter

    def open_budget(self, rule: BudgetSpec, subject: str) -> LeasedBudget:
        """Return the counter of a budget and a subject, as `open` does."""
        counter = self.open(rule, subject)
        assert isinstance(counter, LeasedBudget)
        return counter

    async def seek_room(
        self,
        lines: Sequence[Line],
        claimant: str,
        now_ns: int,
        *,
        may_claim: bool = True,
        most_places: int = 256,
        least: Sequence[Line] = (),
    ) -> Shortage | None:
        """Ask Redis for room for all lines. Return `None` if each counter's `room` is now sufficient; the caller then
        takes immediately.

        Otherwise a retry slot is reserved at every sliding counter, for the time when all lines fit. None is reserved
        if concurrency slots or a budget are short.
        """
        self._seeks += 1
        asked: dict[_Leased, int] = {}
        for counter, amount in lines:
            assert isinstance(counter, LeasedSliding | AnyLeasedEscrow), "a counter of another store"
            asked[counter] = asked.get(counter, 0) + amount
        never = _beyond_the_rule(asked, now_ns)
        if never is not None:
            return never
        enough = dict(least) if may_claim else {}
        refusal: Shortage | None = None
        for _ in range(_MOST_TRIES):
            short = [counter for counter, amount in asked.items() if counter.room(now_ns, claimant) < amount]
            if not short:
                return None
            if self._link.is_away:
                break
            leased = [
                (counter, amount)
                for counter, amount in asked.items()
                if isinstance(counter, LeasedSliding) or not counter.is_counting_only
            ]
            wanted = SeekCommand(leased, claimant, may_claim=may_claim, most_places=most_places, least=enough)
            found, refusal = await self._ask(wanted), None
            if found is None:
                break
            if found.is_content:
                return None
            if not found.is_granted:
                refusal = self._shortage(leased, found, now_ns)
                if any(isinstance(counter, LeasedSliding) and counter.is_short_with_leases for counter, _ in leased):
                    continue  # it is counted again, with the leases of this gateway returned
                return refusal
        return refusal or self._unanswered(asked, now_ns)

    async def run(self) -> None:
        """Request leases in advance, return surplus, report, and forget idle counters, until cancelled."""
        while True:
            self._tell_due()
            self._watch_silence()
            self._watch_leases()
            turns = max(_ROUND_SECONDS / _TURN_SECONDS, 1.0)
            self.forget_idle(min(_MOST_A_TURN, int(len(self._to_visit) / turns) + 1))
            await asyncio.sleep(_TURN_SECONDS)

    async def close(self) -> None:
        """Report usage, return leases, and leave the group of gateways."""
        self._link.is_closing = True
        if not self._link.is_away and self._sender.is_joined:
            for part in list(self._link.active):
                self._sender.post(SyncCommand(part))
        await self._sender.finish(2 * self._timeout_seconds)

    def status(self) -> dict[str, object]:
        """Return this gateway's connection state with Redis, the rules that apply to its share only, and the number of
        round trips.
        """
        now_ns = self._wall_ns()
        status: dict[str, object] = {
            "kind": "redis",
            "url": self._address.shown,
            "gateway": self._name,
            "reachable": not self._is_reported_away,
            "gateways": self._link.gateways,
            "counters": len(self._counters),
            "active": len(self._link.active),
            "round_trips": self._sender.round_trips,
            "requests_with_round_trip": self._seeks,
            "charges": self._link.takes,
        }
        if self._away_since_ns is not None:
            status["away_seconds"] = max(now_ns - self._away_since_ns, 0) / _SECOND_NS
            status["reason"] = self._away_reason
            rules = {counter.rule.id: counter.rule.when_away for counter in self._counters.values()}
            status["on_shares"] = sorted(name for name, way in rules.items() if way == "share")
            status["refusing"] = sorted(name for name, way in rules.items() if way == "refuse")
            used_up = self.leases_used_up()
            status["leases_used_up"] = sorted(name for name, is_used_up in used_up.items() if is_used_up)
        return status

    @property
    def has_leases(self) -> bool:
        """Return whether any hard budget in use can be charged: always, unless Redis is unreachable."""
        used_up = self.leases_used_up()
        return not used_up or not all(used_up.values())

    def leases_used_up(self) -> dict[str, bool]:
        """Return, by id, whether the lease on a hard budget is used up, for budgets used since Redis became
        unreachable.

        A budget with a counter per subject is used up if all counters in use are. Empty unless Redis is unreachable.
        """
        found: dict[str, bool] = {}
        if self._away_since_ns is None:
            return found
        now_ns = self._clock.now_ns()
        for counter in self.budgets():
            if counter.rule.when_away == "refuse" and not counter.is_counting_only:
                is_used_up = counter.grant.is_used_up(self._away_mono_ns, now_ns)
                if is_used_up is not None:
                    found[counter.rule.id] = found.get(counter.rule.id, True) and is_used_up
        return found

    def budgets(self) -> Iterator[LeasedBudget]:
        """Yield the counters of budgets, for persisting their totals."""
        return iter([counter for counter in self._counters.values() if isinstance(counter, LeasedBudget)])

    def forget_idle(self, most: int) -> None:
        """Check the next `most` counters and forget those that are idle and not referenced by a caller."""
        now_ns = self._wall_ns()
        for _ in range(min(most, len(self._to_visit))):
            name = self._to_visit.popleft()
            counter = self._counters[name]
            is_idle = counter.is_idle(now_ns)
            if is_idle and sys.getrefcount(counter) <= _UNOWNED + len(getattr(counter, "_grants", ())):
                del self._counters[name]
                continue
            self._idle_in_hand += is_idle
            self._to_visit.append(name)
        if self._idle_in_hand and now_ns - self._generation_moved_ns >= _GENERATION_NS:
            self.generation += 1
            self._generation_moved_ns = now_ns
            self._idle_in_hand = 0

    def on_granted_life(self, *, keeps_lease: bool) -> None:
        """Drop the grants of the previous session; with `keeps_lease`, those of budgets stay valid."""
        for counter in self._counters.values():
            for part in _parts(counter):
                part.forget_grants(keeps_lease=keeps_lease)

    def on_lost_data(self) -> None:
        """Report everything that this gateway knows to Redis, which has lost its data."""
        for counter in self._counters.values():
            for part in _parts(counter):
                part.forget_data()

    def on_away(self, reason: str, *, is_silent: bool) -> None:
        """Continue without Redis. Log it immediately unless Redis is only late, perhaps for lack of CPU time."""
        self._away_reason = reason
        if self._away_since_ns is None:
            self._silent_turns = 0
            self._away_since_ns = self._wall_ns()
            self._away_mono_ns = self._clock.now_ns()
            self._link.is_away = True
            for counter in self.budgets():
                counter.grant.is_refused = False
        if not is_silent:
            self._report_away()
        for seeker in self._seekers:
            if not seeker.found.done():
                seeker.found.cancel()

    def on_answer(self, answer: Answer) -> None:
        """Continue together with the other gateways."""
        self._link.usable_until_ns = self._sender.usable_until_ns
        self._link.lease_until_ns = self._sender.lease_until_ns
        self._link.gateways = max(answer.alive, 1)
        if self._away_since_ns is not None:
            away_seconds = (self._wall_ns() - self._away_since_ns) / _SECOND_NS
            if self._is_reported_away:
                _log.warning("shared counters are back", extra={"away_seconds": round(away_seconds, 3)})
            else:
                _log.info("shared counters answered late", extra={"seconds": round(away_seconds, 3)})
            self._away_since_ns, self._is_reported_away = None, False
            self._link.is_away = False
            self._has_leases = True

    async def _ask(self, command: SeekCommand) -> SeekResult | None:
        self._seekers.add(command)
        self._sender.post(command)
        try:
            async with RunningTimeout(_LONGEST_WAIT * self._timeout_seconds):
                return await command.found
        except (TimeoutError, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None
        finally:
            self._seekers.discard(command)
            command.release()

    def _tell_due(self) -> None:
        mono_ns = self._clock.now_ns()
        if not self._link.is_away:
            for part in list(self._link.active):
                if part.is_due(mono_ns):
                    self._sender.post(SyncCommand(part))
                elif part.is_settled():
                    del self._link.active[part]
        if mono_ns - self._sender.answered_ns > self._expiry_seconds * _SECOND_NS / _BEATS_PER_LIFE:
            self._sender.beat()

    def _watch_silence(self) -> None:
        """Report that Redis is unreachable once it has been silent for too many turns."""
        if self._away_since_ns is None:
            return
        self._silent_turns += 1
        if self._silent_turns * _TURN_SECONDS >= _SILENT_SECONDS:
            self._report_away()

    def _report_away(self) -> None:
        if not self._is_reported_away:
            self._is_reported_away = True
            _log.warning("shared counters are unreachable", extra={"reason": self._away_reason})

    def _watch_leases(self) -> None:
        """Log once per outage of Redis that budgets have no lease left."""
        mono_ns = self._clock.now_ns()
        if self._away_since_ns is None or mono_ns - self._leases_seen_ns < _LEASES_LOOKED_AT_SECONDS * _SECOND_NS:
            return
        self._leases_seen_ns = mono_ns
        if self._has_leases and not self.has_leases:
            self._has_leases = False
            _log.warning("leases on budgets are used up", extra={"budgets": sorted(self.leases_used_up())})

    def _made(self, rule: Rule, subject: str) -> _Leased:
        if isinstance(rule, BudgetSpec):
            return LeasedBudget(rule, subject, self._link, self._on_settled, self._on_settled_late)
        if rule.window is not None:
            return LeasedSliding(rule, subject, self._link)
        kind = LeasedConversation if rule.scope.level == "conversation" else LeasedConcurrency
        return kind(rule, subject, self._link)

    def _shortage(self, asked: Sequence[tuple[_Leased, int]], found: SeekResult, now_ns: int) -> Shortage:
        """Return the longest shortage. After a loss of data all counters are short until all gateways have reported."""
        if found.answer.quiet_seconds:
            counter, amount = asked[0]
            return Shortage(counter, amount, counter.state(now_ns), found.answer.quiet_seconds, False, _LOST)
        wait_seconds, counter, amount = -1.0, *asked[0]
        for (each, wanted), alone_us in zip(asked, found.alone_us, strict=True):
            if isinstance(each, LeasedSliding):
                each_seconds = (alone_us - found.answer.now_us) / 1_000_000
            else:
                free_ns = each.earliest(wanted, now_ns, now_ns)
                if free_ns is None:
                    return Shortage(each, wanted, each.state(now_ns), None)
                each_seconds = (free_ns - now_ns) / _SECOND_NS
            if each_seconds > wait_seconds:
                wait_seconds, counter, amount = each_seconds, each, wanted
        common_seconds = (found.when_us - found.answer.now_us) / 1_000_000
        wait_seconds = _whole_milliseconds(max(wait_seconds, common_seconds))
        return Shortage(counter, amount, counter.state(now_ns), wait_seconds, found.is_held)

    def _unanswered(self, asked: Mapping[_Leased, int], now_ns: int) -> Shortage | None:
        """Return the shortage if Redis has not answered; `None` if there is room without an answer."""
        for counter, amount in asked.items():
            if counter.room(now_ns) >= amount:
                continue
            state = counter.state(now_ns)
            if self._link.is_away and isinstance(counter, LeasedSliding):
                alone_seconds = counter.wait_alone(amount)
                if alone_seconds is not None:
                    share = counter.rule.amount // self._link.gateways
                    return Shortage(counter, amount, state, _whole_milliseconds(alone_seconds), share=share)
            if self._link.is_away and isinstance(counter, LeasedBudget):
                counter.grant.is_refused = True
            return Shortage(counter, amount, state, _RECONNECT_SECONDS, reason=_AWAY if self._link.is_away else _LATE)
        return None


def _parts(counter: _Leased) -> Sequence[LeasedAmount]:
    return [counter] if isinstance(counter, LeasedSliding) else counter.grants()


def _adopt(counter: _Leased, rule: Rule, now_ns: int) -> bool:
    """Let a counter continue under a changed rule; return whether it can."""
    if rule.metric != counter.rule.metric:
        return False
    if isinstance(counter, LeasedSliding):
        if not isinstance(rule, LimitSpec) or rule.window != counter.rule.window:
            return False
        counter.adopt(rule)
    elif isinstance(counter, LeasedBudget):
        if not isinstance(rule, BudgetSpec):
            return False
        counter.adopt(rule, now_ns)
    else:
        is_conversation = isinstance(counter, LeasedConversation)
        if not isinstance(rule, LimitSpec) or rule.window or is_conversation != (rule.scope.level == "conversation"):
            return False
        assert isinstance(counter, LeasedConversation | LeasedConcurrency)
        counter.adopt(rule, now_ns)
    return True


def _beyond_the_rule(asked: Mapping[_Leased, int], now_ns: int) -> Shortage | None:
    """Return the counter whose amount is smaller than the request needs, if any."""
    for counter, amount in asked.items():
        is_counting_only = isinstance(counter, AnyLeasedEscrow) and counter.is_counting_only
        if amount > counter.rule.amount and not is_counting_only:
            return Shortage(counter, amount, counter.state(now_ns), None)
    return None


def _whole_milliseconds(seconds: float) -> float:
    """Round up to whole milliseconds, as clients are told, so that a client is never early for its slot."""
    return math.ceil(seconds * 1000 - 1e-6) / 1000
