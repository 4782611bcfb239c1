"""The scheduler in front of a pool: weighted virtual token counters between tenants (Sheng et al., OSDI'24).

Synchronous and without a clock: times are arguments (ns). The gateway and the simulator use the same object. Its rules:

- A higher level goes first: the level of a request's class, raised by one for each `ageing_seconds` waited. Within a
  level the tenant with the smallest counter goes first, and of a tenant the oldest request.
- A tenant's counter grows by its tokens, weighted and divided by its weight: by the prompt's when it starts, by the
  output's as they arrive. A tenant that starts to wait at a level is lifted there to the smallest counter of the
  candidates; without candidates, to that of the last one that left. When a pool is empty, all counters start over.
- Long prompts wait in a separate lane; a tenant's short ones may pass them. A tenant at its cap is skipped.
- If the first in line does not fit, the first that fits passes it, as long as no tenant gets further ahead than VTC's
  bound allows, and until as many tokens have passed as the pool holds; then nothing starts before it. A request larger
  than the pool runs alone. So no request waits forever.
- From a full queue the lowest class is shed, within it the tenant with the most waiting requests, and of those the
  newest.
"""

from collections import OrderedDict
from typing import Final

from contracts.rules.limits import PRIORITY_CLASSES, QueueSpec
from gateway.limits.queue.dispatch_order import DispatchOrder
from gateway.limits.queue.pool_load import PoolLoad
from gateway.limits.queue.request import PoolRoom, QueuedRequest
from gateway.limits.queue.shed_order import ShedOrder
from gateway.limits.queue.tenant import LEVELS, Tenant

IDLE_MEMORY_NS: Final = (
    600 * 1_000_000_000
)  # how long a counter ahead of the others' is remembered after its tenant's last request
_FORGOTTEN_AT_ONCE: Final = 2  # more than one for each tenant that goes idle, so that none stay


class FairQueue:
    """A queue in which every request that arrives is dispatched, shed or withdrawn, exactly once."""

    def __init__(self, spec: QueueSpec) -> None:
        self.spec = spec
        self.load = PoolLoad(spec)
        self.shed_order = ShedOrder(spec)
        self.waiting = 0
        self.shed_by_class: dict[str, int] = dict.fromkeys(PRIORITY_CLASSES, 0)
        self._order = DispatchOrder(spec, self.load)
        self._tenants: dict[str, Tenant] = {}
        self._idle: OrderedDict[str, int] = OrderedDict()  # since when (ns)
        self._sequence = 0
        self._now_ns = 0

    def arrive(self, request: QueuedRequest, now_ns: int) -> QueuedRequest | None:
        """Let a request wait. Return the request that is shed for it: itself, if no other one is."""
        self._advance(now_ns)
        victim = None
        tenant = self._introduce(request)
        if self.waiting >= self.spec.max_waiting:
            victim = self.shed_order.who_gives_way(request, tenant)
            if victim is request:
                request.state = "shed"
                self.shed_by_class[request.priority] += 1
                self._rest(tenant)
                return request
        request.state = "waiting"
        self.waiting += 1
        tenant.waiting += 1
        if victim is not None:
            self._shed(victim)
        self._idle.pop(tenant.id, None)
        self.shed_order.add(request, tenant)
        self._order.add(request, tenant)
        return victim

    def next(self, now_ns: int, room: PoolRoom | None = None) -> QueuedRequest | None:
        """Dispatch the next request that fits; `None` if none does. Without `room` the spec's bounds apply.

        The caller repeats this until it returns `None`: a pool never idles while a request fits for which no room is
        held back.
        """
        self._advance(now_ns)
        self._look_at(room)
        if not self.waiting or not self.load.has_seat:
            return None
        request = self._order.choose()
        if request is None:
            return None
        tenant = request.tenant
        request.state = "running"  # set before it is removed: a waiting request may be found in a line
        self._take_out(request, tenant)
        self._begin(request, tenant)
        return request

    def begin_at_once(self, request: QueuedRequest, now_ns: int, room: PoolRoom | None = None) -> bool:
        """Dispatch a new request if none waits and it fits, and return True; else do nothing and return False. The fast
        path.
        """
        load = self.load
        if self.waiting:
            return False
        if room is not load.stated_room:
            self._look_at(room)
        if not load.has_room_for(request):
            return False
        tenant = self._tenants.get(request.tenant_id)
        if load.has_caps and tenant is not None and load.is_capped(tenant, request):
            return False
        if now_ns > self._now_ns:
            self._now_ns = now_ns
        tenant = self._introduce(request)
        self._order.lift(request.level, tenant)
        self._begin(request, tenant)
        return True

    def charge(self, request: QueuedRequest, output_tokens: int) -> None:
        """Count output tokens of a running request as they arrive; for other requests nothing is counted."""
        if request.state == "running":
            request.charged_output += output_tokens
            request.tenant.service += self.spec.output_weight * output_tokens / request.weight

    def leave(
        self,
        request: QueuedRequest,
        now_ns: int,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> None:
        """Remove a running request; a second call does nothing. Given counts correct what was charged before."""
        if request.state != "running":
            return
        self._advance(now_ns)
        tenant = request.tenant
        request.state = "done"
        owed = 0.0
        if input_tokens is not None:
            owed += self.spec.input_weight * (input_tokens - request.charged_input)
        if output_tokens is not None:
            owed += self.spec.output_weight * (output_tokens - request.charged_output)
        # Rounding must not leave the counter of a tenant that used nothing below zero.
        tenant.service = max(tenant.service + owed / request.weight, 0.0)
        self.load.give_back(request, tenant)
        if tenant.waiting and (owed < 0 or self.load.has_caps):
            self._order.stand(tenant)
        self._rest(tenant)

    def withdraw(self, request: QueuedRequest, now_ns: int) -> None:
        """Remove a waiting request whose client has disconnected; other requests are unchanged."""
        if request.state != "waiting":
            return
        self._advance(now_ns)
        tenant = request.tenant
        request.state = "withdrawn"
        self._take_out(request, tenant)
        self._rest(tenant)

    def expire(self, now_ns: int) -> list[QueuedRequest]:
        """Shed and return the requests that have waited longer than their class's deadline."""
        self._advance(now_ns)
        late = []
        while (request := self.shed_order.pop_late(now_ns)) is not None:
            self._shed(request)
            late.append(request)
        return late

    def reconfigure(self, spec: QueueSpec) -> None:
        """Adopt another spec for everything that waits and runs. A smaller queue sheds only when requests arrive."""
        if spec == self.spec:
            return
        self.spec = spec
        self.load.adopt(spec)
        self.shed_order.adopt(spec)
        self._order.adopt(spec)
        for tenant, requests in self.shed_order.by_tenant().items():
            self._order.add_again(tenant, requests)
        self._advance(self._now_ns)  # raises what has waited long enough by the new spec now

    # what is told of it

    @property
    def known_tenants(self) -> int:
        """Return the number of tenants whose counters are remembered."""
        return len(self._tenants)

    def service_of(self, tenant: str) -> float:
        """Return a tenant's service: weighted tokens divided by its weight; 0 if it is not remembered."""
        found = self._tenants.get(tenant)
        return found.service if found is not None else 0.0

    # parts

    def _advance(self, now_ns: int) -> None:
        self._now_ns = max(self._now_ns, now_ns)
        if self.waiting:
            self._order.age(self._now_ns)

    def _look_at(self, room: PoolRoom | None) -> None:
        if self.load.look_at(room):
            self._stand_all()

    def _stand_all(self) -> None:
        """Place every tenant again; only if the bounds themselves have changed."""
        for tenant in self._tenants.values():
            self._order.stand(tenant)

    def _introduce(self, request: QueuedRequest) -> Tenant:
        name = request.tenant_id
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = Tenant(name)
        elif name in self._idle:
            del self._idle[name]
        self._sequence += 1
        request.sequence = self._sequence
        request.arrived_ns = self._now_ns
        request.tenant = tenant
        request.is_long = self.load.is_long(request)
        request.passed_tokens = 0
        return tenant

    def _begin(self, request: QueuedRequest, tenant: Tenant) -> None:
        request.state = "running"
        tokens = request.charged_input = request.input_tokens
        tenant.service += self.spec.input_weight * tokens / request.weight
        self.load.take(request, tenant)
        if tenant.waiting and self.load.has_caps:
            self._order.stand(tenant)

    def _take_out(self, request: QueuedRequest, tenant: Tenant) -> None:
        self.waiting -= 1
        tenant.waiting -= 1
        self.shed_order.remove(request, tenant)
        self._order.remove(request, tenant)

    def _shed(self, request: QueuedRequest) -> None:
        tenant = request.tenant
        request.state = "shed"
        self.shed_by_class[request.priority] += 1
        self._take_out(request, tenant)
        self._rest(tenant)

    def _rest(self, tenant: Tenant) -> None:
        """Remember a tenant without requests only as long as its counter can matter."""
        if not tenant.is_idle:
            return
        if not self.waiting and not self.load.in_flight:
            self._tenants.clear()
            self._idle.clear()
            self._order.forget_all()
            return
        self._idle[tenant.id] = self._now_ns
        for _ in range(min(_FORGOTTEN_AT_ONCE, len(self._idle))):
            name, since_ns = self._idle.popitem(last=False)
            one = self._tenants[name]
            if self._now_ns - since_ns < IDLE_MEMORY_NS and self._is_ahead(one):
                self._idle[name] = since_ns
                self._idle.move_to_end(name, last=False)
                return
            del self._tenants[name]

    def _is_ahead(self, tenant: Tenant) -> bool:
        """Return whether a tenant, if it came back, would not be lifted anyway."""
        floors = [self._order.floor(level) for level in range(LEVELS)]
        return any(floor is not None and tenant.counter(level) > floor for level, floor in enumerate(floors))
