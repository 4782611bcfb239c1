"""Facts shared by all chats with one key for one model in one API, computed once and kept for a second."""

from typing import Final

from backends.llm.http.quick_target import QuickTarget
from contracts.guardrails.policy import covering
from contracts.pricing.prices import UNPRICED, AnyCard, CostBasis
from contracts.recording.records import RequestRecord
from contracts.serving.configuration import KeyEntry, ModelSpec, Snapshot, TargetSpec
from gateway.apis.operations import CHAT, Operation
from gateway.limits.clipping import NATURAL_OUTPUT, UNSEEN_KINDS
from gateway.limits.demand import FREE, Rates
from gateway.limits.headers import RateLines
from gateway.limits.limit_plan import Lines
from gateway.request.plans.cache_plan import CachePlan, cache_plan_of
from gateway.request.plans.forecast import Forecast
from gateway.request.plans.record_shapes import KeptShapes, RecordShape
from gateway.request.stages import Stages
from gateway.routing.health.target_health import TargetHealth
from gateway.routing.replicas.router import Router

_KEPT_NS: Final = 1_000_000_000  # a card that begins, or a key that ends, is seen within a second
_FRESH_NS: Final = 600_000_000
_PASSED_ON: Final = frozenset(("openai_http",))  # nobody sees whole answers grow, and nobody counts prompts
_COUNTED: Final = frozenset(("engine",))  # prompts are counted before anything is taken for them


class PlannedTarget:
    """One of the pool's targets, with its price card and what its records have in common."""

    __slots__ = (
        "spec",
        "target",
        "card",
        "price_basis",
        "price_version",
        "text_rates",
        "health",
        "template",
        "sent_record",
    )

    def __init__(
        self,
        spec: TargetSpec,
        target: QuickTarget | None,  # `None`: a task calls it
        card: AnyCard | None,
        text_rates: tuple[int, int] | None,  # of the card, where usage of text alone needs no more
        health: TargetHealth,
        shape: RecordShape,
    ) -> None:
        self.spec = spec
        self.target = target
        self.card = card
        self.price_basis: CostBasis = UNPRICED.basis if card is None else card.basis
        self.price_version = UNPRICED.version if card is None else card.version
        self.text_rates = text_rates
        self.health = health
        self.template = shape.template
        self.sent_record = shape.packed


class RequestPlan:
    """What all chats of one key for one model need: their limits, prices and targets."""

    __slots__ = (
        "snapshot",
        "key",
        "identity",
        "tenant",
        "model",
        "pool",
        "is_ranked",
        "lines",
        "rates",
        "targets",
        "candidates",
        "sole",
        "forecast",
        "limits_told",
        "is_counted",
        "is_guarded",
        "is_native",
        "is_unseen",
        "is_watched",
        "context_tokens",
        "most_output",
        "priority",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        key: KeyEntry,
        model: ModelSpec,
        lines: Lines | None,  # none: no rule counts them
        rates: Rates,
        targets: dict[str, PlannedTarget],
        forecast: Forecast,
        operation: Operation,
        *,
        is_guarded: bool,
        is_watched: bool,
    ) -> None:
        pool = snapshot.pools[model.pool]
        self.snapshot = snapshot
        self.key = key
        self.identity = key.identity
        self.tenant = key.identity.tenant
        self.priority = key.policy.priority  # of requests that name none
        self.model = model
        self.pool = pool
        self.is_ranked = not Router.is_plain(pool)  # by the pool's policy, from what its targets have to do
        self.lines = lines
        self.rates = rates
        self.targets = targets
        self.candidates = pool.targets
        self.sole = targets[pool.targets[0].id] if len(targets) == 1 else None  # nothing is to be chosen
        self.forecast = forecast
        self.limits_told: RateLines | None = None
        if lines is not None and lines.quick is not None:
            self.limits_told = RateLines(lines, operation.limit_names)
        self.is_guarded = is_guarded  # guardrails look at its texts and answers
        self.is_native = operation is not CHAT  # its targets speak the client's API, which is not OpenAI's for chats
        self.is_counted = pool.kinds == _COUNTED  # its prompts, exactly
        self.is_watched = is_watched  # its answers are copied or hashed as they leave
        self.is_unseen = pool.kinds == UNSEEN_KINDS  # nobody sees its whole answers grow
        self.context_tokens = model.context_tokens
        self.most_output = model.context_tokens or NATURAL_OUTPUT  # of a choice that nobody bounds


class KeptPlan:
    """A plan, or the fact that there is none, and until when that is valid (Unix nanoseconds).

    A model with a response cache has a plan for its cache hits only; its other requests run all stages.
    """

    __slots__ = ("operation", "until_ns", "stale_ns", "plan", "cache_plan")

    def __init__(
        self,
        operation: Operation,
        until_ns: int,
        stale_ns: int,  # from when on it is better made again, where there is time; not after the other
        plan: RequestPlan | None,
        cache_plan: CachePlan | None,
    ) -> None:
        self.operation = operation
        self.until_ns = until_ns
        self.stale_ns = stale_ns
        self.plan = plan
        self.cache_plan = cache_plan


def make_plan(
    stages: Stages, shapes: KeptShapes, key: KeyEntry, operation: Operation, model_name: str, now_ns: int
) -> KeptPlan:
    """Return the plan for chats of a key for a model, if they need none of the stages that a plan leaves out."""
    snapshot = stages.directory.snapshot
    model = snapshot.models.get(model_name)
    ends = (now_ns + _KEPT_NS, snapshot.prices.unchanged_around(now_ns)[1], key.expires_at_ns, key.revoked_at_ns)
    tenant = snapshot.tenants.get(key.identity.tenant)
    is_watched = tenant is not None and (tenant.keeps_content or tenant.audits_requests)
    is_guarded = bool(snapshot.guardrails and covering(snapshot.guardrails, key.identity.tenant, model_name))
    plan = None
    if model is not None and (not is_guarded or stages.guardrails.is_immediate(key.identity.tenant, model_name)):
        plan = _open(stages, shapes, key, operation, model, now_ns, is_guarded=is_guarded, is_watched=is_watched)
    # A kept answer is given by a plan only if nobody else looks at it, and to chats in OpenAI's API.
    is_kept = model is not None and operation is CHAT and not is_watched and not is_guarded
    cached = cache_plan_of(stages, key, model, snapshot, now_ns) if is_kept and model is not None else None
    until_ns = min(end for end in ends if end is not None)
    return KeptPlan(operation, until_ns, min(now_ns + _FRESH_NS, until_ns), plan, cached)


def _open(
    stages: Stages,
    shapes: KeptShapes,
    key: KeyEntry,
    operation: Operation,
    model: ModelSpec,
    now_ns: int,
    *,
    is_guarded: bool,
    is_watched: bool,
) -> RequestPlan | None:
    snapshot = stages.directory.snapshot
    if not _is_open(stages, key, operation, model, snapshot):
        return None
    if is_guarded and snapshot.pools[model.pool].kinds != _PASSED_ON:
        return None  # a prompt would be counted before it is looked at
    limiter, tenant = stages.limiter, key.identity.tenant
    lines = limiter.plans.plan_for(key.identity, model.id, snapshot).fixed
    if lines is None or lines.counts_gpu:
        return None
    rates: Rates | None = FREE
    if lines.counts_money:
        rates = limiter.quotes.constant(model, tenant, snapshot, now_ns)
    candidates = snapshot.pools[model.pool].targets
    targets = {spec.id: _target(stages, shapes, spec, key, operation, model, now_ns) for spec in candidates}
    found = {name: target for name, target in targets.items() if target is not None}
    if rates is None or len(found) < len(targets):
        return None
    forecast = Forecast(limiter.inputs, limiter.outputs, tenant, model.id)
    return RequestPlan(
        snapshot,
        key,
        model,
        lines if lines.all else None,
        rates,
        found,
        forecast,
        operation,
        is_guarded=is_guarded,
        is_watched=is_watched,
    )


def _is_open(stages: Stages, key: KeyEntry, operation: Operation, model: ModelSpec, snapshot: Snapshot) -> bool:
    """Return whether the key and the model's route require nothing that changes a plain chat or makes it wait."""
    if model.sampling is not None or model.cache is not None or key.policy.max_reasoning_effort is not None:
        return False
    if key.policy.max_thinking_tokens is not None:
        return False
    if snapshot.holds and key.policy.priority == "batch":
        return False  # what objectives in danger hold back is told as it is admitted
    if not stages.guard.admits(key, model, operation.api):
        return False
    pool = snapshot.pools[model.pool]
    if pool.failures.hedge is not None or pool.failures.is_timed or stages.queues.get(model.pool).spec is not None:
        return False
    # An engine host's prompts are counted exactly where a policy compares its replicas: that may have to wait.
    if pool.kinds == _PASSED_ON:
        return True
    return operation is CHAT and pool.kinds == _COUNTED and stages.router.is_plain(pool)


def _target(
    stages: Stages,
    shapes: KeptShapes,
    spec: TargetSpec,
    key: KeyEntry,
    operation: Operation,
    model: ModelSpec,
    now_ns: int,
) -> PlannedTarget | None:
    found: object = stages.targets.find(spec)
    target: QuickTarget | None = None
    native = None if operation.native is None else operation.native.api
    if isinstance(found, QuickTarget) and found.passes_on(model.id, native):
        target = found
    elif found is None or spec.kind not in _COUNTED:
        return None
    card = stages.settlement.card_for(model.id, key.identity.tenant, spec, now_ns, stages.directory.snapshot)
    example = RequestRecord(
        request_id=bytes(16),
        started_at_ns=0,  # it varies: plans of different moments share their shapes
        duration_ns=0,
        who=key.identity,
        operation=operation.name,
        api=operation.api,
        requested_model=model.id,
        route=model.id,
        model=model.id,
        provider=spec.provider or spec.kind,
        pool=spec.pool,
        replica=spec.id,
        region=spec.region,
        gateway=stages.recorder.gateway,
        priority=key.policy.priority,
    )
    health = stages.caller.health.of(spec)
    return PlannedTarget(spec, target, card, _text_rates(card), health, shapes.of(example))


def _text_rates(card: AnyCard | None) -> tuple[int, int] | None:
    """Return pico-USD per input and per output token of text; `None` if the price depends on more than these."""
    if card is None or card.request_pico_usd:
        return None
    rate_in, rate_out = card.rate("input_text", None), card.rate("output_text", None)  # `None` where size matters
    return None if rate_in is None or rate_out is None else (rate_in, rate_out)
