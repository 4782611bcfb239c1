"""Reserves limits and budgets for a request before it is sent, and settles them at its end.

A request without rules costs one lookup. Other requests get a grant: tokens, time and money at the level that similar
requests needed, never more than the caller allows. A grant that is too small is extended while the answer runs
(`gateway/replies/allowance.py`); a surplus is refunded to its window.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from contracts.access.identity import Identity
from contracts.api.chat import GenerationRequest
from contracts.api.media import MediaRequest
from contracts.errors import (
    ClientGone,
    CountersUnavailable,
    LimitExceeded,
    PermissionDenied,
    Shutdown,
    TollkeeperError,
)
from contracts.metering.usage import Usage
from contracts.pricing.service_tiers import BATCH, UNDECIDED
from contracts.serving.configuration import ModelSpec, Snapshot
from gateway.limits.clipping import (
    beyond_bound,
    beyond_limit,
    bound_of,
    clip,
    ever_allowed,
    fitting,
    least_asked,
    least_output,
    most_output,
    nothing_fits,
    possible,
    what_is_left,
)
from gateway.limits.counters.base import Counter, CounterStore, Shortage
from gateway.limits.demand import (
    CONCURRENCY,
    FREE,
    GPU,
    MONEY,
    NOTHING,
    ONE_REQUEST,
    REQUESTS,
    TOKENS,
    Amounts,
    Rates,
)
from gateway.limits.estimates.counting import TokenEstimator, prompt_bytes, sound_of
from gateway.limits.estimates.output_estimates import OutputEstimator, SteadyEstimates
from gateway.limits.headers import Headers, rate_headers
from gateway.limits.limit_plan import LimitPlans, Lines
from gateway.limits.quotes import GpuRates, Quotes
from gateway.limits.refusal import describe, refusal_of
from gateway.limits.reservation import Grant, Reservation, Size, take, take_after_look, take_at_once
from gateway.replies.allowance import NEVER, Allowance
from gateway.request.charges.charging import used_by
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState

if TYPE_CHECKING:
    from gateway.request.plans.plan import RequestPlan

_log = logging.getLogger(__name__)

# Retry slots per key: one for each client that says that it tries for the first time. A client that sends no retry
# count may be a single one that asks repeatedly; a retry has its slot already.
_PLACES_OF_NEW: Final = 256
_PLACES_OF_UNSAID: Final = 8
_MAX_TRIES: Final = 4  # others may take the room that was found

_UNCOUNTED: Final = frozenset(("openai_http",))  # kinds of targets whose prompts cannot be counted
_SHORT_BYTES: Final = 4096  # size of a body whose prompt is counted within a millisecond
_ASKED: Final = (REQUESTS, CONCURRENCY)  # metrics that can be reserved before a prompt is counted

CountInput = Callable[[], Awaitable[int | None]]


class Limiter:
    """Reserves and settles for every request."""

    def __init__(
        self,
        store: CounterStore,
        inputs: TokenEstimator,
        outputs: OutputEstimator,
        clock: Clock,
        on_refused: Callable[[Counter], None] | None = None,
    ) -> None:
        self.store = store
        self.plans = LimitPlans(store)
        self.quotes = Quotes()
        self.inputs = inputs
        self.outputs = SteadyEstimates(outputs)
        self._gpu = GpuRates()
        self._clock = clock
        self._on_refused = on_refused
        self.steady_ns = clock.steady_ns

    def reserve_at_once(self, life: RequestState, plan: "RequestPlan", counted: int | None) -> bool:
        """Reserve what a request of a plan needs, if every counter has that and all the request may need in addition.

        `counted` is its prompt's length in tokens; `None`: estimate it. Return whether it was reserved; otherwise
        nothing is.
        """
        lines, request, now_ns = plan.lines, life.request, self._clock.steady_ns()
        if lines is None or request is None:
            return True
        tokens_in = tokens_out = 0
        more: Amounts | None = None
        if lines.counts_tokens:
            limit, choices = life.output_limit, life.choices
            tokens_in = plan.forecast.input_tokens(life.prompt_bytes, now_ns)
            if counted is not None:
                tokens_in = counted
            elif tokens_in > lines.most_input:
                tokens_in = lines.most_input
            each = plan.forecast.output_tokens
            tokens_out = (each if limit is None or each < limit else limit) * choices
            more = plan.rates.of_more((plan.most_output if limit is None else limit) * choices)
        wanted = plan.rates.at_start(tokens_in, tokens_out)
        if not lines.allow(wanted):
            return False
        if lines.quick is None:  # leased counters: a lease could turn out too small
            portion = take_after_look(lines, wanted, now_ns, "", more, needs_more=bool(lines.capping))
        else:
            portion = take_at_once(lines, wanted, now_ns, more)
        if portion is None:
            return False
        reservation = Reservation(lines, [portion])
        if lines.capping and not portion.has_more:
            reservation.undo()
            return False
        life.grant = Grant(reservation, plan.rates, tokens_in, tokens_out)
        return True

    async def reserve(self, life: RequestState, count_input: CountInput, *, retries: int | None = None) -> Grant | None:
        """Return the grant for a request whose key and model are known; `None` if no rule covers it.

        `count_input` counts the prompt exactly, where that is possible. `retries` is how often the client has tried
        before, `None` if it does not say: a client that may have waited as told can use the retry slot of its key.
        Raises LimitExceeded, BudgetExhausted, PermissionDenied (a rule counts money and the model has no price) or
        CountersUnavailable.
        """
        model, request = life.model, life.request
        assert model is not None and request is not None
        plan = self.plans.plan_for(life.who, model.id, life.snapshot)
        if plan.is_empty:
            return None
        lines = plan.lines_for(self.store, life.who, model.id, life.conversation_id)
        if lines.counts_gpu and not _is_ours(model, life):
            lines = lines.without(GPU)  # the target does not measure GPU time
        tokens_in = await self._input_of(life, model, lines, count_input, retries)
        now_ns = self._clock.steady_ns()
        rates = self._rates(lines, life, model, tokens_in, now_ns)
        if not rates.is_priced:
            lines = _without_money(lines, model.id, life.asked_tier)
        tokens_out, more = self._output_of(life, model, lines, rates)
        wanted = rates.at_start(tokens_in, tokens_out)
        if not lines.allow(wanted):
            least = least_output(request.choice_count, tokens_out)
            tokens_out = ever_allowed(lines, rates, tokens_in, tokens_out, least)
            wanted = rates.at_start(tokens_in, tokens_out)
        claimant = "" if retries == 0 else life.who.key_id
        portion = take(lines, wanted, now_ns, claimant, more)
        if portion is not None:
            grant = Grant(Reservation(lines, [portion]), rates, tokens_in, tokens_out)
            if portion.has_more:
                return grant  # nothing can cut this answer: everything it may ever need is available now
        else:
            grant = await self._take_slowly(life.who, life, lines, rates, tokens_in, tokens_out, retries)
        if lines.capping:
            clip(grant, life, now_ns)
        return grant

    async def _input_of(
        self, life: RequestState, model: ModelSpec, lines: Lines, count_input: CountInput, retries: int | None
    ) -> int:
        """Return how many input tokens to reserve: the exact count if possible, else an upper estimate."""
        if not lines.counts_tokens or isinstance(life.request, MediaRequest):
            return 0
        at_most = possible(lines, self.inputs.upper(life.who.tenant, model.id, prompt_bytes(life.body)))
        # Requests for which no counter has room are not tokenized.
        if life.snapshot.pools[model.pool].kinds == _UNCOUNTED or nothing_fits(lines, self._clock.steady_ns()):
            return at_most
        exact = await self._count(life, lines, count_input, retries)
        return at_most if exact is None else exact

    def _output_of(
        self, life: RequestState, model: ModelSpec, lines: Lines, rates: Rates
    ) -> tuple[int, Amounts | None]:
        """Return how many output tokens to reserve, and the maximum that could be needed; 0 and `None` if output is not
        counted.
        """
        request = life.request
        if not isinstance(request, GenerationRequest) or not lines.counts_tokens:
            return 0, None
        tokens = self.outputs.estimate(life.who.tenant, model.id, request.output_limit, request.choice_count)
        return tokens, rates.of_more(most_output(request, model))

    def counting(self, who: Identity, model: str, snapshot: Snapshot) -> "Counting":
        """Return a context manager that counts a call without a model as a request, within the limits on requests and
        concurrency.

        `model` is the model's id; empty: no model is concerned. Entering it raises LimitExceeded or
        CountersUnavailable.
        """
        plan = self.plans.plan_for(who, model, snapshot)
        return Counting(self, who, plan.lines_for(self.store, who, model, "").only(_ASKED))

    async def _count(
        self, life: RequestState, lines: Lines, count_input: CountInput, retries: int | None
    ) -> int | None:
        """Count a prompt's tokens. A long prompt is counted only if the limits allow a request."""
        asked = lines.only(_ASKED)
        if len(life.body) <= _SHORT_BYTES or not asked.all:
            return await count_input()
        held = await self.ask(life.who, life, asked, retries)
        used = ONE_REQUEST  # also if the prompt is refused, or the client disconnects meanwhile
        try:
            count = await count_input()
            used = NOTHING  # everything is taken together now
            return count
        finally:
            held.settle(used, self._clock.steady_ns())

    async def ask(self, who: Identity, life: RequestState | None, lines: Lines, retries: int | None) -> Reservation:
        """Reserve one request and one concurrency slot. Raises LimitExceeded or CountersUnavailable."""
        now_ns = self._clock.steady_ns()
        portion = take(lines, FREE.at_start(0, 0), now_ns, "" if retries == 0 else who.key_id)
        if portion is not None:
            return Reservation(lines, [portion])
        return (await self._take_slowly(who, life, lines, FREE, 0, 0, retries)).reservation

    async def reserve_cost(
        self, life: RequestState, pico_usd: int | None, *, retries: int | None = None
    ) -> Grant | None:
        """Return the grant for a request that uses no tokens and has this cost; `None` means that the cost is unknown.

        Used for requests that are answered from the cache. Raises the errors of `reserve`.
        """
        model = life.model
        assert model is not None
        plan = self.plans.plan_for(life.who, model.id, life.snapshot)
        if plan.is_empty:
            return None
        lines = plan.lines_for(self.store, life.who, model.id, life.conversation_id)
        if pico_usd is None and lines.counts_money:
            lines = _without_money(lines, model.id, life.asked_tier)
        rates = Rates(request_pico_usd=pico_usd or 0)
        claimant = "" if retries == 0 else life.who.key_id
        portion = take(lines, rates.at_start(0, 0), self._clock.steady_ns(), claimant)
        if portion is None:
            return await self._take_slowly(life.who, life, lines, rates, 0, 0, retries)
        return Grant(Reservation(lines, [portion]), rates, 0, 0)

    async def size(self, life: RequestState, grant: Grant | None, count_input: CountInput) -> Size:
        """Return a request's input tokens and expected output tokens, for planning."""
        if grant is not None and grant.input_tokens:
            return Size(grant.input_tokens, grant.output_tokens)
        request = life.request
        assert request is not None
        if isinstance(request, MediaRequest):
            return Size(0, 0)
        exact = await count_input()
        tenant, model = life.who.tenant, request.model
        tokens_in = self.inputs.upper(tenant, model, prompt_bytes(life.body)) if exact is None else exact
        if not isinstance(request, GenerationRequest):
            return Size(tokens_in, 0)
        return Size(tokens_in, self.outputs.estimate(tenant, model, request.output_limit, request.choice_count))

    def rate_headers(self, grant: Grant | None) -> Headers:
        """Return the rate limit headers of an admitted request's response: what remains, and what was lowered."""
        if grant is None:
            return ()
        first = grant.reservation.portions[0]
        left = first.left if first.has_more else None  # then each counter was charged at this time
        headers = rate_headers(grant.reservation.lines, first.at_ns, left)
        if grant.max_output is not None:
            headers += (
                (b"x-tollkeeper-max-tokens", b"%d" % grant.max_output),
                (b"x-tollkeeper-clipped-by", grant.clipped_by.encode()),
            )
        return headers

    def headers_at_end(self, life: RequestState, grant: Grant | None) -> Headers:
        """Return the `x-ratelimit-*` headers of an error, also for a request that got no grant."""
        if grant is not None:
            return rate_headers(grant.reservation.lines, self._clock.steady_ns())
        if life.model is None:
            return ()
        plan = self.plans.plan_for(life.who, life.model.id, life.snapshot)
        lines = plan.lines_for(self.store, life.who, life.model.id, life.conversation_id)
        return rate_headers(lines, self._clock.steady_ns())

    def allowance(
        self,
        life: RequestState,
        grant: Grant | None,
        thinking_cap: int | None,
        end: Callable[[TollkeeperError], None],
    ) -> Allowance:
        """Return the allowance of a chat's answer: its output may grow as long as the limits have room. If they have
        none left, `end` is called with the error.
        """
        request, model = life.request, life.model
        assert isinstance(request, GenerationRequest) and model is not None
        thinking_end = None
        if thinking_cap is not None:
            why = LimitExceeded(
                f"the answer's reasoning has reached the key's cap of {thinking_cap} tokens",
                code="thinking_tokens_exceeded",
            )
            thinking_end = (thinking_cap, why)
        each, rule = bound_of(life, grant)
        choices = request.choice_count
        most = NEVER if each is None else each * choices
        at_most = None if each is None else partial(beyond_limit, each, rule)
        if grant is None:
            return Allowance(NEVER, most, None, end, thinking_end, choices, at_most)
        return Allowance(
            grant.output_tokens, most, _OutputSource(self, life, grant), end, thinking_end, choices, at_most
        )

    def extend_now(self, grant: Grant, more_output: int) -> bool:
        """Reserve more output for a running request without waiting; return whether there was room."""
        return grant.reservation.extend(grant.rates.of_more(more_output), self._clock.steady_ns())

    def what_lacks(self, grant: Grant) -> tuple[TollkeeperError, str]:
        """Return why no more output can be reserved: the error for the caller, and the id of the rule that is
        used up.
        """
        now_ns = self._clock.steady_ns()
        wanted = grant.rates.of_more(1)
        lines = [(counter, wanted[place]) for counter, place in grant.reservation.lines.all if wanted[place]]
        counter, asked = min(lines, key=lambda line: line[0].room(now_ns) - line[1])
        shortage = Shortage(counter, asked, counter.state(now_ns), counter.state(now_ns).reset_seconds)
        return refusal_of(shortage), counter.rule.id

    async def extend(self, grant: Grant, more_output: int) -> bool:
        """Reserve more output for a running request, from the shared counters if necessary; return whether there was
        room.
        """
        wanted = grant.rates.of_more(more_output)
        reservation = grant.reservation
        if reservation.extend(wanted, self._clock.steady_ns()):
            return True
        asked = _asked(reservation.lines, wanted)
        if await self.store.seek_room(asked, "", self._clock.steady_ns()) is not None:
            return False
        return reservation.extend(wanted, self._clock.steady_ns())

    def release(self, grant: Grant | None) -> None:
        """Release all reservations of a request, as if they had not been made: another model serves it."""
        if grant is not None:
            grant.reservation.settle(NOTHING, self._clock.steady_ns())

    def settle(self, life: RequestState, grant: Grant | None) -> None:
        """Charge a request that has ended, and learn from it. Sets the charges on its record."""
        if not life.teaches_plan:
            self._learn(life)
        beyond = beyond_bound(life, grant)
        if grant is None:
            life.overdraft_tokens = beyond
            life.charged_pico_usd = life.cost.total_pico_usd
            return
        reservation = grant.reservation
        life.limit = life.limit or grant.clipped_by
        used = used_by(life, grant)
        now_ns = life.settled_ns = self._clock.steady_ns()
        charged = reservation.settle(used, now_ns)
        life.reserved_tokens = reservation.reserved(TOKENS)
        life.overdraft_tokens = max(reservation.overdraft[TOKENS], beyond or 0)
        life.overdraft_pico_usd = reservation.overdraft[MONEY] or None
        if grant.rates.is_priced:
            counts_money = reservation.lines.counts_money
            life.charged_pico_usd = charged[MONEY] if counts_money else life.cost.total_pico_usd
        elif life.cost.basis == "free":
            life.charged_pico_usd = 0
        if life.plan is not None and len(reservation.portions) == 1:  # reserved in the single call
            tokens = reservation.portions[0].charged_tokens
            if tokens:
                life.charges = [(0, tokens)]
            return
        # Both clocks are read here: otherwise the work since `now_ns` would be added to each offset.
        set_ns = self._clock.wall_ns() - self._clock.steady_ns()
        life.charges = [
            (max(portion.at_ns + set_ns - life.started_at_ns, 0), portion.charged_tokens)
            for portion in reservation.portions
            if portion.charged_tokens
        ]

    async def _take_slowly(
        self,
        who: Identity,
        life: RequestState | None,
        lines: Lines,
        rates: Rates,
        tokens_in: int,
        tokens_out: int,
        retries: int | None,
    ) -> Grant:
        """Reserve what was not available at first: from the shared counters, or less of a nearly spent budget."""
        shortage: Shortage | None = None
        choices = 1 if life is None or life.request is None else life.request.choice_count
        claimant = "" if retries == 0 else who.key_id
        most_places = _PLACES_OF_NEW if retries == 0 else _PLACES_OF_UNSAID if retries is None else 1
        least = least_output(choices, tokens_out)
        for _ in range(_MAX_TRIES):
            amounts = rates.at_start(tokens_in, tokens_out)
            now_ns = self._clock.steady_ns()
            shortage = await self.store.seek_room(
                _asked(lines, amounts),
                who.key_id,
                now_ns,
                may_claim=retries != 0,
                most_places=most_places,
                least=_asked(lines, rates.at_start(tokens_in, least), of=amounts),
            )
            if shortage is not None:
                smaller = what_is_left(shortage, rates, amounts)
                if smaller is None or not least <= smaller < tokens_out:
                    if smaller is not None and smaller < least:
                        shortage = least_asked(shortage, choices, rates.at_start(tokens_in, least))
                    break
                tokens_out = smaller
            now_ns = self._clock.steady_ns()
            if shortage is None and claimant:
                tokens_out = fitting(lines, rates, tokens_in, tokens_out, now_ns, claimant, least)
            portion = take(lines, rates.at_start(tokens_in, tokens_out), now_ns, claimant)
            if portion is not None:
                return Grant(Reservation(lines, [portion]), rates, tokens_in, tokens_out)
        raise self._refusal(shortage, life)

    def _refusal(self, shortage: Shortage | None, life: RequestState | None) -> TollkeeperError:
        """Return the error that refuses a request, and notify the observer of the counter without room."""
        if shortage is None:  # room was found each time, but other requests took it first
            return CountersUnavailable("the counters of this key are under heavy load", retry_after_seconds=0.1)
        if life is not None:
            life.limit = shortage.counter.rule.id
        is_counted = not shortage.reason and shortage.asked <= shortage.state.amount
        if is_counted and self._on_refused is not None:  # beyond the rule's whole amount: no sign of its use
            self._on_refused(shortage.counter)
        return refusal_of(shortage)

    def _rates(self, lines: Lines, life: RequestState, model: ModelSpec, tokens_in: int, now_ns: int) -> Rates:
        rates = FREE
        if lines.counts_money and isinstance(life.request, MediaRequest):
            rates = self._media_rates(life, model, life.request, now_ns)
        elif lines.counts_money:
            generates = isinstance(life.request, GenerationRequest)
            tenant, tier = life.who.tenant, life.asked_tier
            rates = self.quotes.rates(model, tenant, tokens_in, life.snapshot, now_ns, generates=generates, tier=tier)
        return self._gpu.add_to(rates, model.id) if lines.counts_gpu else rates

    def _media_rates(self, life: RequestState, model: ModelSpec, request: MediaRequest, now_ns: int) -> Rates:
        """Return the maximum cost of the requested units, as a price per request.

        For a card that prices only tokens, estimates are reserved, as for a chat.
        """
        tenant, wanted = life.who.tenant, request.wanted
        tokens_in = self.inputs.upper(tenant, model.id, prompt_bytes(life.body) - request.sound_bytes)
        if request.sound_bytes:
            wanted = Usage(milliseconds=self.inputs.upper(tenant, sound_of(model.id), request.sound_bytes))
        tokens_out = self.outputs.estimate(tenant, model.id, None, request.choice_count)
        return self.quotes.media(model, tenant, wanted, (tokens_in, tokens_out), life.snapshot, now_ns, life.asked_tier)

    def _learn(self, life: RequestState) -> None:
        attempt, request = life.learned_of, life.request
        is_left = isinstance(life.error, ClientGone | Shutdown)  # long answers are cut more often: they count as cut
        if attempt is None or (life.error is not None and not is_left):
            return
        if not isinstance(request, GenerationRequest | MediaRequest):
            return
        whole = "stop" if isinstance(request, MediaRequest) else ""  # other media are never cut
        tokens_out = life.tokens_out
        if tokens_out is not None and life.count_method != "estimate":
            self.outputs.learn(
                life.who.tenant,
                request.model,
                tokens_out,
                "" if is_left else life.finish_reason or attempt.result.finish_reason or whole,
                request.choice_count,
            )
        if attempt.result.gpu is not None:
            self._gpu.learn(request.model, attempt.result.gpu, life.usage)


class Counting:
    """A call that is counted as a request while it runs, for `async with`."""

    def __init__(self, limiter: Limiter, who: Identity, lines: Lines) -> None:
        self._limiter = limiter
        self._who = who
        self._lines = lines
        self._held: Reservation | None = None

    async def __aenter__(self) -> None:
        if self._lines.all:
            self._held = await self._limiter.ask(self._who, None, self._lines, None)

    async def __aexit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.settle(ONE_REQUEST, self._limiter.steady_ns())


class _OutputSource:
    """Where one answer's allowance gets more output from, and why it gets no more."""

    def __init__(self, limiter: Limiter, life: RequestState, grant: Grant) -> None:
        self.is_shared = limiter.store.is_shared
        self._limiter, self._life, self._grant = limiter, life, grant

    def extend_now(self, tokens: int) -> bool:
        return self._limiter.extend_now(self._grant, tokens)

    def extend(self, tokens: int) -> Awaitable[bool]:
        return self._limiter.extend(self._grant, tokens)

    def why_not(self) -> TollkeeperError:
        error, rule = self._limiter.what_lacks(self._grant)
        self._life.limit = rule
        return error


def _is_ours(model: ModelSpec, life: RequestState) -> bool:
    return "engine" in life.snapshot.pools[model.pool].kinds


def _without_money(lines: Lines, model: str, tier: str) -> Lines:
    """Leave out the rules that count money, if they allow unpriced models. Raises PermissionDenied otherwise."""
    for counter, place in lines.all:
        if place == MONEY and counter.rule.when_unpriced == "refuse":
            missing, remedy = "no price", "create a price card for it (prices of 0 if it is free)"
            if tier not in ("", BATCH, UNDECIDED):
                missing = f"no price for the service tier {tier!r}"
                remedy = "use another service tier, or add prices for this one to the model's price card"
            raise PermissionDenied(
                f"the model {model!r} has {missing}, and {describe(counter.rule, counter.subject)} counts money: "
                f"{remedy} or set --when-unpriced allow on the rule",
                code="unpriced_model",
            )
    return lines.without(MONEY)


def _asked(lines: Lines, amounts: Amounts, of: Amounts | None = None) -> list[tuple[Counter, int]]:
    """Return the amount requested of each counter, without zeros; `of` tells which counters if they differ."""
    counted = amounts if of is None else of
    return [(counter, amounts[place]) for counter, place in lines.all if counted[place]]
