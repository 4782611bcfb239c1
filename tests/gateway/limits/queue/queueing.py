"""What the scheduling tests share: requests made short, and the queue's rules said once more, slowly."""

from contracts.rules.limits import QueueSpec
from gateway.limits.queue.fair_queue import FairQueue
from gateway.limits.queue.request import QueuedRequest
from gateway.limits.queue.sizes import rounded_up

SECOND_NS = 1_000_000_000


def request(tenant="a", prompt=10, output=10, priority="standard", weight=1) -> QueuedRequest:
    return QueuedRequest(tenant, prompt, prompt + output, priority, weight)


def queue_of(**settings) -> FairQueue:
    return FairQueue(QueueSpec(**settings))


def next_of(queue: FairQueue, now_ns: int = 0) -> QueuedRequest:
    found = queue.next(now_ns)
    assert found is not None, "somebody should have been next"
    return found


def drain(queue: FairQueue, now_ns: int = 0) -> list[QueuedRequest]:
    """Dispatch one after the other, each leaving before the next."""
    found = []
    while (one := queue.next(now_ns)) is not None:
        found.append(one)
        queue.leave(one, now_ns)
    return found


def expected_next(queue: FairQueue, waiting: list[QueuedRequest]) -> QueuedRequest | None:
    """Return who must be next, by looking at everybody; `waiting` is all that waits."""
    load = queue.load
    if not load.has_seat:
        return None
    fronts: dict[tuple[str, int, bool], QueuedRequest] = {}
    for one in waiting:
        if one.is_long and not load.is_lane_open:
            continue
        key = (one.tenant_id, one.level, one.is_long)
        if key not in fronts or one.sequence < fronts[key].sequence:
            fronts[key] = one
    ready = [one for one in fronts.values() if not load.is_capped(one.tenant, one)]
    ready.sort(key=lambda one: (one.level, one.tenant.counter(one.level), one.sequence))
    free = load.free_tokens
    fitting = [one for one in ready if free is None or rounded_up(one.reserved_tokens) <= free]
    if not fitting:
        return None
    first = ready[0]
    chosen = fitting[0]
    if first is not chosen and (first.passed_tokens >= (load.max_tokens or 0) or not may_pass(queue, chosen, ready)):
        return None
    return chosen


def may_pass(queue: FairQueue, chosen: QueuedRequest, ready: list[QueuedRequest]) -> bool:
    first = next(one for one in ready if one.level == chosen.level)
    own, spec = chosen.tenant, queue.spec
    if first.tenant is own:
        return True
    ahead = (own.counter(chosen.level) - first.tenant.counter(chosen.level)) * chosen.weight
    most = max(spec.input_weight, spec.output_weight) * (own.tokens_in_flight + chosen.reserved_tokens)
    return ahead + most <= spec.output_weight * (queue.load.max_tokens or 0)
