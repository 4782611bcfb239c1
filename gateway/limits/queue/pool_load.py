"""A pool's current load, and the remaining capacity for it and for each tenant's share."""

from contracts.rules.limits import QueueSpec
from gateway.limits.queue.request import PoolRoom, QueuedRequest
from gateway.limits.queue.sizes import rounded_up
from gateway.limits.queue.tenant import Tenant


class PoolLoad:
    """Counts what is in progress against the spec's bounds, or those that the pool reports."""

    def __init__(self, spec: QueueSpec) -> None:
        self.in_flight = 0
        self.tokens_in_flight = 0
        self.long_in_flight = 0
        self._cap: int | None = None  # per tenant, in requests
        self._token_cap: int | None = None
        self.adopt(spec)

    def adopt(self, spec: QueueSpec) -> None:
        """Adopt another spec."""
        self._spec = spec
        self._long_bound = spec.long_prompt_tokens
        self._set(None)

    def look_at(self, room: PoolRoom | None) -> bool:
        """Record the capacity that the pool reports (`None`: use the spec's bounds). Return whether tenants' caps have
        changed.
        """
        before = (self._cap, self._token_cap)
        if room is not self.stated_room:
            self._set(room)
        return before != (self._cap, self._token_cap)

    def _set(self, room: PoolRoom | None) -> None:
        self.stated_room = room
        spec = self._spec
        self.max_in_flight = spec.max_in_flight if room is None else room.max_in_flight
        self.max_tokens = spec.max_tokens_in_flight if room is None else room.max_tokens
        self._others = 0 if room is None else room.others_in_flight
        self._others_tokens = 0 if room is None else room.others_tokens
        self._cap = _share(self.max_in_flight, spec.tenant_max_in_flight)
        self._token_cap = _share(self.max_tokens, spec.tenant_max_tokens)
        self.has_caps = self._cap is not None or self._token_cap is not None

    @property
    def has_seat(self) -> bool:
        """Return whether one more request may run."""
        return self.max_in_flight is None or self.in_flight + self._others < self.max_in_flight

    @property
    def free_tokens(self) -> int | None:
        """Return how many more tokens the pool has room for; `None` if any request fits, as in an empty pool."""
        if self.max_tokens is None:
            return None
        used = self.tokens_in_flight + self._others_tokens
        return self.max_tokens - used if used > 0 else None

    @property
    def is_lane_open(self) -> bool:
        """Return whether one more long prompt may run."""
        return self.long_in_flight < self._spec.long_prompt_slots

    def is_long(self, request: QueuedRequest) -> bool:
        """Return whether a request belongs in the lane for long prompts."""
        return self._long_bound is not None and request.input_tokens > self._long_bound

    def has_room_for(self, request: QueuedRequest) -> bool:
        """Return whether the pool has room for a request now."""
        if self.max_in_flight is not None and self.in_flight + self._others >= self.max_in_flight:
            return False
        if self.max_tokens is not None:
            free = self.free_tokens
            if free is not None and rounded_up(request.reserved_tokens) > free:
                return False
        return self._long_bound is None or self.is_lane_open or not self.is_long(request)

    def is_capped(self, tenant: Tenant, request: QueuedRequest) -> bool:
        """Return whether a tenant has too much in progress to start this request too. A single request may exceed the
        cap in tokens.
        """
        if self._cap is not None and tenant.in_flight >= self._cap:
            return True
        cap = self._token_cap
        return cap is not None and 0 < tenant.in_flight and tenant.tokens_in_flight + request.reserved_tokens > cap

    def take(self, request: QueuedRequest, tenant: Tenant) -> None:
        """Count a request that starts."""
        tokens = request.reserved_tokens
        self.in_flight += 1
        self.tokens_in_flight += tokens
        tenant.in_flight += 1
        tenant.tokens_in_flight += tokens
        if request.is_long:
            self.long_in_flight += 1

    def give_back(self, request: QueuedRequest, tenant: Tenant) -> None:
        """Remove a request that has ended."""
        tokens = request.reserved_tokens
        self.in_flight -= 1
        self.tokens_in_flight -= tokens
        tenant.in_flight -= 1
        tenant.tokens_in_flight -= tokens
        if request.is_long:
            self.long_in_flight -= 1


def _share(bound: int | None, share: float) -> int | None:
    """Return a tenant's cap; `None` for a share of one, which the pool's own bound already enforces."""
    return None if bound is None or share >= 1 else max(int(bound * share), 1)
