"""Sends copies of the incumbent's requests to the candidate: bounded, charged to no tenant, and never returned to a
client.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from backends.embedder.base import Embedder
from contracts.access.identity import Identity
from contracts.api.chat import ChatRequest
from contracts.serving.configuration import KeyEntry, KeyPolicy, ModelSpec
from contracts.serving.rollouts import PLATFORM_TENANT, RolloutSpec, ShadowPolicy, place_of
from contracts.serving.routes import RouteEntry, RouteSpec
from gateway.apis.operations import CHAT, Operation
from gateway.limits.demand import MONEY
from gateway.limits.limiter import Limiter
from gateway.replies.reply import Reply
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.routing.rollouts.answer_text import text_of
from gateway.routing.rollouts.likeness import likeness
from gateway.routing.rollouts.observations import attempt_of, observation_of
from gateway.routing.rollouts.shadow_budget import ShadowBudget, day_of
from gateway.routing.rollouts.shadow_exchange import Original, ShadowExchange
from gateway.wire.exchange import Exchange

_log = logging.getLogger(__name__)

_PARTS_OF_PERCENT: Final = 10_000


class Server(Protocol):
    """Serves one copy until it is recorded."""

    def serve(
        self,
        exchange: Exchange,
        operation: Operation,
        key: KeyEntry | None = None,
        *,
        shadow: tuple[RouteSpec, RolloutSpec] | None = None,
    ) -> RequestState: ...


class Shadows:
    """The shadow copies of a gateway. A copy without room, money or a price is not sent, and is counted as dropped."""

    def __init__(self, limiter: Limiter, clock: Clock, embedder: Embedder | None) -> None:
        self._limiter = limiter
        self._clock = clock
        self._embedder = embedder
        self._serve: Server | None = None
        self._under_way: dict[str, set[asyncio.Task[None]]] = {}
        self._budgets: dict[str, ShadowBudget] = {}
        self.made = 0
        self.dropped: Counter[str] = Counter()  # by reason

    def serve_with(self, serve: Server) -> None:
        """Set the function that serves copies; before that, none is sent."""
        self._serve = serve

    def sync(self, rollouts: Iterable[RolloutSpec]) -> None:
        """Forget the allowances of removed rollouts; those of live ones are unchanged."""
        live = {spec.id for spec in rollouts}
        self._budgets = {name: budget for name, budget in self._budgets.items() if name in live}

    def budget_of(self, spec: RolloutSpec) -> ShadowBudget:
        """Return a rollout's allowance."""
        return self._budgets.setdefault(spec.id, ShadowBudget())

    def wants(self, life: RequestState, spec: RolloutSpec) -> bool:
        """Return whether a request should be copied, as far as known before it is answered."""
        policy = spec.rules.shadow
        if policy is None or life.arm != "incumbent" or not isinstance(life.request, ChatRequest):
            return False
        tenant = life.snapshot.tenants.get(life.who.tenant)
        if tenant is not None and tenant.audits_requests:
            return False  # its trail must name every model that sees its content
        return place_of(spec.salt, "shadow", life.id_text) < round(policy.percent * _PARTS_OF_PERCENT)

    def copy(self, life: RequestState, spec: RolloutSpec, text: str | None) -> None:
        """Schedule a copy of a request that the incumbent has answered, in the background."""
        policy, attempt = spec.rules.shadow, attempt_of(life, spec.incumbent)
        seen = None if attempt is None else observation_of(attempt, text)
        if policy is None or seen is None or seen.failed or life.error is not None or self._serve is None:
            return
        tasks = self._under_way.setdefault(spec.id, set())
        if len(tasks) >= policy.max_concurrent:
            self.dropped["no room"] += 1
            return
        # A tenant's end user is named only in that tenant's records, which are deleted by its rules.
        asked = msgspec.structs.replace(CHAT.read("application/json", life.body), user=None)
        held = self._hold(life, spec, policy)
        if held is None:
            return
        original = Original(
            life.id_text, text, seen.refused, seen.ttft_ms, seen.duration_ms, seen.output_tokens, seen.cost_usd
        )
        exchange = ShadowExchange(CHAT.paths[0], life.body, original, by_meaning=policy.by_meaning)
        exchange.read = asked
        # Pinned to the regions of the original: a copy may go to no other region.
        regions = () if life.regions is None else tuple(sorted(life.regions))
        entry = RouteEntry(model=spec.candidate, regions=regions)
        route = RouteSpec(id=f"{spec.route}~{spec.id}~{','.join(regions)}", choose=(entry,))
        task = asyncio.get_running_loop().create_task(
            self._run(self._serve, exchange, route, spec, held), name="shadow"
        )
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def compare(self, life: RequestState, exchange: Exchange, reply: Reply | None) -> None:
        """Write into a copy's record how its answer compares with the original."""
        spec = life.rollout
        if spec is None or not isinstance(exchange, ShadowExchange):
            return
        attempt, original = attempt_of(life, spec.candidate), exchange.original
        copied = None if reply is None else reply.copied()
        text = None if copied is None or life.error is not None else text_of(copied[0] + copied[1])
        seen = None if attempt is None else observation_of(attempt, text)
        said: dict[str, object] = {
            "of": original.request_id,
            "ttft_ms": original.ttft_ms,
            "duration_ms": original.duration_ms,
            "output_tokens": original.output_tokens,
            "cost_usd": original.cost_usd,
            "refused": original.refused,
            "own_refused": None if seen is None else seen.refused,
            "own_ttft_ms": None if seen is None else seen.ttft_ms,
            "own_duration_ms": None if seen is None else seen.duration_ms,
        }
        if text is not None and original.text is not None:
            embedder = self._embedder if exchange.by_meaning else None
            said["same"] = text == original.text
            with contextlib.suppress(asyncio.CancelledError):  # the gateway stops: the record has no comparison
                said["similarity"], said["by"] = await likeness(original.text, text, embedder)
        life.add_decision("shadow", said)

    async def close(self) -> None:
        """Cancel all copies in progress."""
        tasks = [task for of_one in self._under_way.values() for task in of_one]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _hold(self, life: RequestState, spec: RolloutSpec, policy: ShadowPolicy) -> int | None:
        """Reserve a copy's maximum cost; `None` if it may not be sent."""
        price = self._price(life, life.snapshot.models[spec.candidate])
        if price is None:
            self.dropped["no price"] += 1
            return None
        if not self.budget_of(spec).take(day_of(self._clock.wall_ns()), price, policy.max_pico_usd_per_day):
            self.dropped["no money"] += 1
            return None
        return price

    def _price(self, life: RequestState, model: ModelSpec) -> int | None:
        request, limiter = life.request, self._limiter
        assert isinstance(request, ChatRequest)
        tokens_in = life.usage.input_tokens or 0
        rates = limiter.quotes.rates(
            model, PLATFORM_TENANT, tokens_in, life.snapshot, self._clock.wall_ns(), generates=True
        )
        tokens_out = limiter.outputs.estimate(PLATFORM_TENANT, model.id, request.output_limit, request.choice_count)
        tokens_out = max(tokens_out, life.usage.output_tokens or 0)
        return rates.at_start(tokens_in, tokens_out)[MONEY] if rates.is_priced else None

    async def _run(
        self, serve: Server, exchange: ShadowExchange, route: RouteSpec, spec: RolloutSpec, held: int
    ) -> None:
        budget, day = self.budget_of(spec), self.budget_of(spec).day
        cost = held  # unless a better value is known
        try:
            await asyncio.sleep(0)  # the end of the original answer goes first
            life = serve.serve(exchange, CHAT, _payer(spec), shadow=(route, spec))
            await life.ended()
            self.made += 1
            known = life.cost.total_pico_usd
            cost = 0 if not life.attempts else held if known is None else known
        except Exception:  # an error of a copy must not affect anything else
            _log.exception("a shadow copy failed because of a fault of the gateway", extra={"rollout": spec.id})
        finally:
            if budget.day == day:
                budget.settle(held, cost)
            else:
                budget.settle(held, 0)  # it was reserved yesterday


def _payer(spec: RolloutSpec) -> KeyEntry:
    who = Identity(tenant=PLATFORM_TENANT, key_id="shadow", tags={"rollout": spec.id})
    return KeyEntry(digest=b"", identity=who, policy=KeyPolicy(priority="batch"))
