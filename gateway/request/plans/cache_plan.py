"""Facts shared by all chats with one key for one cached model, computed once and kept for a second."""

from contracts.pricing.prices import Cost
from contracts.recording.records import RequestRecord
from contracts.serving.caching import CachePolicy
from contracts.serving.configuration import KeyEntry, ModelSpec, Snapshot
from gateway.apis.operations import CHAT
from gateway.cache.answer_cache import UNUSED
from gateway.cache.answer_store import Entry
from gateway.cache.fingerprint import Context, share_of
from gateway.limits.limit_plan import Lines
from gateway.request.plans.record_shapes import RecordTemplate
from gateway.request.stages import Stages


class CachePlan:
    """The cache partition of one key and model, and what its cache hits have in common."""

    __slots__ = ("context", "key", "lines", "model", "policy", "prices", "snapshot", "template", "tenant")

    def __init__(
        self,
        snapshot: Snapshot,
        key: KeyEntry,
        model: ModelSpec,
        policy: CachePolicy,
        context: Context,
        lines: Lines | None,  # none: no rule counts them
        template: RecordTemplate,
    ) -> None:
        self.snapshot = snapshot
        self.key = key
        self.tenant = key.identity.tenant
        self.model = model
        self.policy = policy
        self.context = context
        self.lines = lines
        self.template = template
        # By name, of the answers that were given: a hit's cost, and the answer's own (pico-USD).
        self.prices: dict[bytes, tuple[Entry, Cost, int | None]] = {}


def cache_plan_of(stages: Stages, key: KeyEntry, model: ModelSpec, snapshot: Snapshot, now_ns: int) -> CachePlan | None:
    """Return where to look for cached responses of a key and model; `None` if only the full path of stages can tell."""
    policy = model.cache
    if policy is None or model.sampling is not None or model.id in snapshot.routes:
        return None
    who = key.identity
    share = share_of(who, policy.share)
    lines = stages.limiter.plans.plan_for(who, model.id, snapshot).fixed
    if share is None or lines is None or lines.quick is None:
        return None
    example = RequestRecord(
        request_id=bytes(16),
        started_at_ns=now_ns,
        duration_ns=0,
        who=who,
        operation=CHAT.name,
        api=CHAT.api,
        requested_model=model.id,
        route=model.id,
        model=model.id,
        gateway=stages.recorder.gateway,
        usage=UNUSED,
        count_method="exact",
        attempts=0,
        cache="hit",
        priority=key.policy.priority,
    )
    return CachePlan(
        snapshot,
        key,
        model,
        policy,
        stages.answers.context(model, snapshot, share, CHAT, model.id, key.policy, None),
        lines if lines.all else None,
        RecordTemplate(example, model.pool),
    )
