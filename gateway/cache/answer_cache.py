"""The response cache: answers a request from the cache if possible, and stores the answers of models."""

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from contracts.api.answer_parts import Findings
from contracts.api.chat import TranslatedChat
from contracts.errors import ClientGone, Shutdown
from contracts.json_names import has_repeated_names
from contracts.metering.usage import Usage
from contracts.serving.caching import CachePolicy
from contracts.serving.configuration import DEFAULT_POLICY, KeyPolicy, ModelSpec, Snapshot
from gateway.apis.operations import Operation
from gateway.apis.reading import read_retries
from gateway.cache.answer_store import MEANING_BYTES, AnswerStore, Entry, text_bytes
from gateway.cache.cache_control import CacheWish, read_cache_control
from gateway.cache.cached_answer import CachedAnswer, UnreadableAnswer, pack_answer, unpack_answer
from gateway.cache.fingerprint import (
    Context,
    Contexts,
    Fingerprint,
    fingerprint,
    share_of,
)
from gateway.cache.flights import FlightResult, Flights
from gateway.cache.lookup import CacheLookup
from gateway.cache.pricing import price_hit
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import Grant
from gateway.replies.answer_copy import AnswerCopy
from gateway.replies.reply import Reply
from gateway.request.charges.settlement import Settlement
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.wire.exchange import Headers, header_lines

if TYPE_CHECKING:
    from backends.counters.shared_answers import SharedAnswers
    from backends.embedder.base import Embedder
    from gateway.cache.meanings import Meanings

_SECOND_NS: Final = 1_000_000_000
_LONGEST_WAIT_SECONDS: Final = 30.0  # for another's answer; then a request asks for itself
_LONGEST_THOUGHT_SECONDS: Final = 0.25  # about a text's meaning, before the model is asked instead
_MAX_WAITS: Final = 3  # each for one that was given up by its client before the end
_BYPASS: Final[Headers] = ((b"x-cache", b"bypass"),)
_MISS: Final[Headers] = ((b"x-cache", b"miss"),)
UNUSED: Final = Usage(input_text=0, output_text=0)  # no model did anything

Kept = tuple[Entry, CachedAnswer]
# How a model ends an answer that it would not give again, or that others should not be given.
_NOT_KEPT: Final = frozenset(("content_filter", "error", "abort", "cancelled"))
_CUT: Final = frozenset(("length", ""))  # where limits bounded it: perhaps by them, and others have more


class CacheCounts(msgspec.Struct):
    """Requests to models and routes with a response cache, by cache result; and the results of storing answers."""

    hits: int = 0
    semantic_hits: int = 0
    misses: int = 0
    bypasses: int = 0  # the caller wanted none, or the request cannot be named
    waits: int = 0  # requests that waited for another's answer
    kept: int = 0
    not_kept: int = 0  # cut, filtered, too large, by another model than the one asked for, ...
    unreadable: int = 0  # kept answers that no longer parsed
    saved_pico_usd: int = 0  # what hits would have cost, less what they cost


class AnswerCache:
    """The answers cached by this process, and those shared between gateways.

    `embedder` computes embeddings; without one, policies that use them cache exact answers only. Without `shared` each
    gateway has its own answers.
    """

    def __init__(
        self,
        max_bytes: int,
        limiter: Limiter,
        settlement: Settlement,
        clock: Clock,
        embedder: "Embedder | None" = None,
        shared: "SharedAnswers | None" = None,
    ) -> None:
        self.counts = CacheCounts()
        self._shared = shared
        self._store = AnswerStore(max_bytes, self._forget)
        self._flights = Flights()
        self._contexts = Contexts()
        self._limiter = limiter
        self._settlement = settlement
        self._clock = clock
        self._embedder = embedder
        self._known_meanings: Meanings | None = None
        self._warming: asyncio.Future[bytes | None] | None = None

    def sync(self, snapshot: Snapshot) -> None:
        """Use a new configuration. If it needs the embedder, start loading it now, because that takes seconds."""
        policies = [model.cache for model in snapshot.models.values()]
        policies += [route.cache for route in snapshot.routes.values()]
        wants_meanings = any(policy is not None and policy.mode == "semantic" for policy in policies)
        if wants_meanings and self._embedder is not None and self._known_meanings is None:
            self._warming = asyncio.ensure_future(self._meanings().embed("", "warm up"))

    def begin(self, life: RequestState) -> CacheLookup:
        """Start a request's lookup. The caller must end it with `end`."""
        policy, model, exchange = life.cache, life.model, life.exchange
        assert policy is not None and model is not None
        wish = read_cache_control(exchange.header(b"cache-control"))
        is_refused = not (wish.may_read or wish.may_keep)
        name = None if is_refused else self._name(life, model, life.operation, exchange.body, policy)
        retries = read_retries(exchange.header(b"x-stainless-retry-count"))
        return CacheLookup(policy, wish, name, model.id, life.regions, exchange.body, retries)

    async def answer(self, life: RequestState, reply: Reply, lookup: CacheLookup) -> bool:
        """Answer a request from the cache; return whether it was a hit.

        After a miss the request goes to its model. Raise the limiter's errors, because a hit is counted as a request.
        """
        name, wish = lookup.name, lookup.wish
        if name is None:
            self.counts.bypasses += 1
            reply.add_headers(_BYPASS)
            return False
        if wish.may_read:
            kept = self._look_for(life, name.exact, wish) or await self._wait(life, name, wish)
            if kept is not None:
                await self._give(life, reply, lookup, kept, None)
                return True
        if wish.may_keep:
            lookup.copy = AnswerCopy(lookup.policy.max_answer_bytes)
            if self._flights.find(life.who.tenant, name.exact) is None:
                lookup.flight = self._flights.open(life.who.tenant, name.exact)
        if wish.may_read and self._shared is not None:
            kept = await self._fetch(life, lookup, name, self._shared)
            if kept is not None:
                await self._give(life, reply, lookup, kept, None)
                return True
        if name.text and await self._give_alike(life, reply, lookup, name):
            return True
        self.counts.misses += 1
        life.cache_outcome = "miss"
        reply.add_headers(_MISS)
        if lookup.copy is not None:
            reply.copy_to(lookup.copy)
        return False

    def end(self, life: RequestState, reply: Reply | None, lookup: CacheLookup, grant: Grant | None) -> None:
        """Store the answer of a miss if it is cacheable, and wake the requests that wait for it.

        `grant` is the request's reservation: an answer that a limit cut is not stored.
        """
        how = (
            FlightResult.GIVEN_UP
            if life.is_hit or isinstance(life.error, ClientGone | Shutdown)
            else FlightResult.WITHOUT
        )
        try:
            if life.cache_outcome == "miss" and life.error is None and self._keep(life, reply, lookup, grant):
                how = FlightResult.KEPT
        finally:
            if lookup.flight is not None:
                lookup.flight.finish(how)
            if lookup.meaning is not None:
                lookup.meaning.cancel()

    def context(
        self,
        model: ModelSpec,
        snapshot: Snapshot,
        share: tuple[str, ...],
        operation: Operation,
        requested_model: str,
        rules: KeyPolicy,
        regions: frozenset[str] | None,
        guard: str = "",  # the digest of the guardrails that it has passed
    ) -> Context:
        """Return everything that an answer depends on besides its request's body."""
        return self._contexts.of(
            model,
            snapshot,
            share,
            operation.api,
            operation.paths[:1],  # versions of an API answer in their own words
            requested_model,
            rules.max_reasoning_effort,
            rules.max_thinking_tokens,
            regions,
            guard,
        )

    def look(self, tenant: str, key: bytes, policy: CachePolicy, wish: CacheWish) -> Kept | None:
        """Return a cached answer; `None` if there is none for this request, or if it cannot be read."""
        ttl, wanted = policy.ttl_seconds, wish.max_age_seconds
        max_age = ttl if wanted is None else min(wanted, ttl)  # it may have been kept by a policy that gave it longer
        entry = self._store.get(tenant, key, self._clock.monotonic_ns(), max_age * _SECOND_NS)
        if entry is None:
            return None
        if entry.answer is not None:
            return entry, entry.answer
        try:
            answer = unpack_answer(entry.packed)
        except UnreadableAnswer:
            self.counts.unreadable += 1
            self._store.remove(tenant, key)
            return None
        self._store.note_read(tenant, entry, answer, header_lines(answer.served))
        return entry, answer

    def note_hit(self, cost_pico_usd: int | None, whole_pico_usd: int | None) -> None:
        """Count an exact hit: its cost, and the cost of generating its answer now (pico-USD)."""
        self.counts.hits += 1
        self.counts.saved_pico_usd += (whole_pico_usd or 0) - (cost_pico_usd or 0)

    def state(self) -> dict[str, int]:
        """Return the state that GET /ready shows."""
        self._store.sweep(self._clock.monotonic_ns())  # nobody may ask for anything that is kept any more
        found = {name: getattr(self.counts, name) for name in CacheCounts.__struct_fields__}
        return {
            **found,
            "entries": self._store.entries,
            "bytes": self._store.size_bytes,
            "max_bytes": self._store.max_bytes,
            "evicted": self._store.evicted,
            "under_way": len(self._flights),
            **({} if self._shared is None else self._shared.state()),
        }

    async def close(self) -> None:
        """Send queued answers to the shared cache, and close the connection."""
        if self._shared is not None:
            await self._shared.close()

    def _name(
        self, life: RequestState, model: ModelSpec, operation: Operation, body: bytes, policy: CachePolicy
    ) -> Fingerprint | None:
        """Return a request's cache key; `None` if it cannot be cached."""
        share = share_of(life.who, policy.share)
        if share is None:
            return None
        rules = DEFAULT_POLICY if life.key is None else life.key.policy
        guard = "" if life.guard is None else life.guard.digest
        native = life.request.native if isinstance(life.request, TranslatedChat) else None
        if native is not None:
            guard += native.head  # betas change answers
        if not operation.paths:
            guard += life.exchange.path  # which says whether the answer is a stream
        context = self.context(model, life.snapshot, share, operation, life.requested_model, rules, life.regions, guard)
        wants_text = policy.mode == "semantic" and self._embedder is not None
        return fingerprint(body, context, wants_text=wants_text, is_response=operation.api == "responses")

    def _look_for(self, life: RequestState, key: bytes, wish: CacheWish) -> Kept | None:
        assert life.cache is not None
        kept = self.look(life.who.tenant, key, life.cache, wish)
        if kept is None or life.regions is None or kept[1].region in life.regions:
            return kept
        return None

    async def _wait(
        self, life: RequestState, name: Fingerprint, wish: CacheWish
    ) -> "tuple[Entry, CachedAnswer] | None":
        """Wait for the answer to an equal request in progress; `None` if there will be none."""
        has_waited = False
        for _ in range(_MAX_WAITS):
            flight = self._flights.find(life.who.tenant, name.exact)
            if flight is None:
                return None
            self.counts.waits += not has_waited
            has_waited = True
            how = await flight.wait(_LONGEST_WAIT_SECONDS)
            if how is FlightResult.KEPT:
                return self._look_for(life, name.exact, wish)
            if how is not FlightResult.GIVEN_UP:
                return None  # what failed for one is not asked for by one after the other
        return None

    async def _fetch(
        self, life: RequestState, lookup: CacheLookup, name: Fingerprint, shared: "SharedAnswers"
    ) -> "tuple[Entry, CachedAnswer] | None":
        """Return the answer cached by another gateway, or by this one before a restart; it is then cached here too."""
        tenant = life.who.tenant
        found = await shared.get(tenant, name.exact)
        if found is None:
            return None
        kept_at_ns = self._clock.monotonic_ns() - found.age_ns
        self._store.put(tenant, name.exact, found.packed, kept_at_ns, found.ttl_ns)
        kept = self._look_for(life, name.exact, lookup.wish)
        if kept is not None and lookup.flight is not None:
            lookup.flight.finish(FlightResult.KEPT)
        return kept

    async def _give_alike(self, life: RequestState, reply: Reply, lookup: CacheLookup, name: Fingerprint) -> bool:
        """Answer with a cached answer to a request with the same meaning; return whether there was one."""
        tenant, meanings = life.who.tenant, self._meanings()
        lookup.meaning = asyncio.ensure_future(meanings.embed(tenant, name.text))
        # What is not known in time helps who asks later: the answer is kept under it.
        done, _ = await asyncio.wait((lookup.meaning,), timeout=_LONGEST_THOUGHT_SECONDS)
        meaning = lookup.meaning.result() if done else None
        if meaning is None or not lookup.wish.may_read:
            return False
        nearest = meanings.find(tenant, name.around, name.text, meaning, lookup.policy.similarity)
        if nearest is None:
            return False
        kept = self._look_for(life, nearest[0], lookup.wish)
        if kept is None:
            return False
        await self._give(life, reply, lookup, kept, nearest[1])
        return True

    async def _give(
        self, life: RequestState, reply: Reply, lookup: CacheLookup, kept: Kept, similarity: float | None
    ) -> None:
        """Answer with a cached answer, at its price. Raises LimitExceeded, BudgetExhausted, ..."""
        entry, answer = kept
        cost, whole_pico_usd = price_hit(life, answer, lookup.policy, self._settlement)
        lookup.grant = await self._limiter.reserve_cost(life, cost.total_pico_usd, retries=lookup.retries)
        now_ns = life.admitted_ns = self._clock.monotonic_ns()
        life.usage, life.count_method, life.cost = UNUSED, "exact", cost
        life.finish_reason = answer.finish_reason
        life.findings = Findings(answer.tool_calls, answer.schema_failed)
        if life.guard is not None:
            life.guard.take_over(answer.verdicts)
        age = (b"age", b"%d" % ((now_ns - entry.kept_at_ns) // _SECOND_NS))
        if similarity is None:
            self.note_hit(cost.total_pico_usd, whole_pico_usd)
            life.cache_outcome = "hit"
            said: Headers = ((b"x-cache", b"hit"), age)
        else:
            self.counts.semantic_hits += 1
            self.counts.saved_pico_usd += (whole_pico_usd or 0) - (cost.total_pico_usd or 0)
            life.cache_outcome = "semantic_hit"
            said = ((b"x-cache", b"semantic-hit"), (b"x-cache-similarity", b"%.4f" % similarity), age)
        reply.add_headers(self._limiter.rate_headers(lookup.grant) + said)
        reply.replay(answer.begun, answer.end, answer.served)

    def _keep(self, life: RequestState, reply: Reply | None, lookup: CacheLookup, grant: Grant | None) -> bool:
        """Cache an answer; return whether it is stored now."""
        if lookup.copy is None or lookup.name is None:
            return False
        sent = None if reply is None or not _is_fit(life, lookup, grant) else reply.copied()
        if sent is None or has_repeated_names(lookup.body):
            self.counts.not_kept += 1
            return False
        tenant, key, ttl_ns = life.who.tenant, lookup.name.exact, lookup.policy.ttl_seconds * _SECOND_NS
        packed = pack_answer(_kept_answer(life, *sent))
        meaning = lookup.meaning.result() if lookup.meaning is not None and lookup.meaning.done() else None
        beside = 0 if meaning is None else MEANING_BYTES + text_bytes(lookup.name.text)
        if not self._store.put(tenant, key, packed, self._clock.monotonic_ns(), ttl_ns, beside_bytes=beside):
            self.counts.not_kept += 1
            return False
        self.counts.kept += 1
        if self._shared is not None:
            self._shared.put(tenant, key, packed, ttl_ns)
        if meaning is not None:
            self._meanings().add(tenant, key, lookup.name.around, lookup.name.text, meaning)
        return True

    def _meanings(self) -> "Meanings":
        if self._known_meanings is None:
            assert self._embedder is not None
            from gateway.cache.meanings import Meanings  # here: numpy is loaded by gateways that need it

            self._known_meanings = Meanings(self._embedder)
        return self._known_meanings

    def _forget(self, tenant: str, key: bytes) -> None:
        if self._known_meanings is not None:
            self._known_meanings.forget(tenant, key)


def _is_fit(life: RequestState, lookup: CacheLookup, grant: Grant | None) -> bool:
    """Return whether an answer may be reused: complete, uncut, and by the model and in the regions it is cached for."""
    last = life.last_attempt
    if last is None or lookup.is_lacking or life.finish_reason or last.result.finish_reason in _NOT_KEPT:
        return False
    if grant is not None and grant.max_output is not None and last.result.finish_reason in _CUT:
        return False
    model = last.model or life.model
    if model is None or model.id != lookup.model:
        return False
    return lookup.regions is None or last.target.region in lookup.regions


def _kept_answer(life: RequestState, begun: bytes, end: bytes, served: Headers) -> CachedAnswer:
    last, request = life.last_attempt, life.request
    assert last is not None and request is not None and life.model is not None
    return CachedAnswer(
        is_stream=request.is_streamed,
        begun=begun,
        end=end,
        served=served,
        model=(last.model or life.model).id,
        seller=last.target.provider or last.target.kind,
        kind=last.target.kind,
        price_version=life.cost.version,
        cost_pico_usd=life.cost.total_pico_usd,
        region=last.target.region,
        finish_reason=last.result.finish_reason,
        usage=life.usage,
        tool_calls=life.findings.tool_calls,
        schema_failed=life.findings.schema_failed,
        verdicts=[] if life.guard is None else life.guard.verdicts,
    )
