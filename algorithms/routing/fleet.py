"""A pool's replicas and their state: ranks them for a request, and tracks the requests sent to each.

A chosen replica's work and expected cache are updated at once, so that a burst of requests sees its own earlier
choices.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from algorithms.routing.policies.base import Policy
from algorithms.routing.policy_input import PoolView, RoutingRequest
from algorithms.routing.prefix_index import PrefixIndex
from algorithms.routing.replica import Replica, RoutedRequest, SharedPaces
from algorithms.routing.sessions import Sessions
from algorithms.routing.work_book import WorkBook
from contracts.recording.records import KvEvent
from contracts.serving.configuration import PoolSpec, TargetSpec

_REFRESH_NS: Final = 1_000_000_000
_APART: Final = 1.01  # change of the pool's pace from which all replicas are refreshed


class Fleet:
    """The replicas of one pool, in its order. `spec`, `specs`, `model` and `served` are set by the router.

    `model` is the name under which an application first used the pool.
    """

    def __init__(self, policy: Policy, index: PrefixIndex | None = None, policy_name: str = "") -> None:
        self.policy = policy
        self.policy_name = policy_name
        self.index = index or PrefixIndex()
        self.replicas: list[Replica] = []
        self.spec: PoolSpec | None = None
        self.specs: Sequence[TargetSpec] = ()
        self.model = ""
        self.served: Mapping[str, tuple[str, str]] = {}  # by replica: an engine host's URL, and its model
        self.looked_ns = 0
        self.decisions = 0
        self._paces = SharedPaces()
        self._pace = self._paces.prefill
        self._work = WorkBook()
        self._places: dict[int, int] = {}  # by bit
        self._by_name: dict[str, int] = {}
        self._sessions = Sessions()
        self._refreshed_ns = 0
        self._refreshed_pace_ns = self._pace.ns_per_token

    def follow_pool(self, pool: PoolSpec) -> None:
        """Update to a pool's current targets. A target whose URL changed counts as a new one."""
        before = {spec.id: spec for spec in self.specs}
        changed = [spec.id for spec in pool.targets if spec.id in before and before[spec.id].url != spec.url]
        if changed:
            self.follow([(one.id, one.weight) for one in self.replicas if one.id not in changed])
        self.spec, self.specs = pool, pool.targets
        self.follow([(spec.id, spec.weight) for spec in pool.targets])

    def follow(self, names: Sequence[tuple[str, int]]) -> None:
        """Update to these replicas, (name, weight) each. Those that remain keep their state."""
        known = {one.id: one for one in self.replicas}
        self.replicas = []
        for name, weight in names:
            one = known.pop(name, None)
            if one is None:
                one = Replica(name, self.index.join(), weight, self._paces)
                self._work.join(name)
            one.weight = weight
            self.replicas.append(one)
        for gone in known.values():
            self.index.leave(gone.bit)
            self._work.leave(gone.id)
        self._note_places()

    def place_of(self, spec: TargetSpec) -> int | None:
        """Return a target's index; `None` if it is not, or no longer, in this pool."""
        place = self._by_name.get(spec.id)
        if place is None or self.spec is None:
            return None
        own = self.specs[place]
        return place if own is spec or (spec.pool == self.spec.id and own.url == spec.url) else None

    # what the caches hold

    def forget_cache(self, name: str) -> None:
        """Reset a replica's cached blocks: unknown, and without cache events from now on."""
        place = self._by_name.get(name)
        if place is None:
            return
        replica = self.replicas[place]
        replica.is_exact = False
        self.index.leave(replica.bit)
        replica.bit = self.index.join()
        self._note_places()

    def begin_cache(self, name: str, hashes: Sequence[int]) -> None:
        """Set a replica's cached blocks exactly; cache events keep them up to date from now on."""
        self.forget_cache(name)
        place = self._by_name.get(name)
        if place is not None:
            self.replicas[place].is_exact = True
            self.index.stored(self.replicas[place].bit, hashes)

    def note_cache(self, name: str, event: KvEvent, hashes: Sequence[int]) -> None:
        """Apply a cache event of a replica."""
        place = self._by_name.get(name)
        if place is None:
            return
        if event == "stored":
            self.index.stored(self.replicas[place].bit, hashes)
        elif event == "removed":
            self.index.removed(self.replicas[place].bit, hashes)
        else:
            self.begin_cache(name, ())

    # a request

    def view(self, request: RoutingRequest, now_ns: int, within: frozenset[str] | None = None) -> PoolView:
        """Return the pool's state for a request, including cached parts of its prompt.

        `within` are the names of the replicas that may receive it; `None`: all.
        """
        if now_ns - self._refreshed_ns > _REFRESH_NS:
            self._refresh(now_ns)
        matches: list[tuple[int, int]] = []
        if self.policy.wants_prefixes and request.keys:
            matches = self.index.match(request.keys, request.block_tokens)
        last = None
        if request.session and (name := self._sessions.last(request.session)) is not None:
            last = self._by_name.get(name)
        allowed = None
        if within is not None:
            allowed = [place for place, one in enumerate(self.replicas) if one.id in within]
        return PoolView(self.replicas, self._places, now_ns, matches, self._work, last, allowed)

    def rank(self, request: RoutingRequest, view: PoolView) -> list[int]:
        """Return the indexes of replicas, best first; in a large pool not all of them."""
        self.decisions += 1
        return self.policy.rank(request, view)

    def begin(
        self, replica: Replica, request: RoutingRequest, cached: int, now_ns: int, *, is_blind: bool = False
    ) -> RoutedRequest:
        """Record that a request is sent to a replica that has cached `cached` of its tokens, and return its record.

        `is_blind`: the answer is not streamed.
        """
        routed = RoutedRequest(now_ns, request.tokens, cached, request.keys, is_blind=is_blind)
        replica.begin(routed, now_ns)
        if replica.id in self._work.of:
            self._work.add(replica.id, routed.uncached * replica.slowness, now_ns)
        if self.policy.wants_prefixes and request.keys:
            keys = request.keys[cached // request.block_tokens :] if cached else request.keys
            routed.is_assumed = not replica.is_exact
            if routed.is_assumed:  # including the cached blocks, which are used now
                self.index.assume(replica.bit, request.keys)
            elif keys:
                self.index.expect(replica.bit, keys)
            routed.expected = (replica.bit, keys)
        if request.session:
            self._sessions.note(request.session, replica.id)
        return routed

    def first_token(self, replica: Replica, routed: RoutedRequest, now_ns: int) -> None:
        """Record that a request's prompt has been computed and cached."""
        replica.first_token(routed, now_ns)
        if not 1 / _APART < self._pace.ns_per_token / self._refreshed_pace_ns < _APART:
            self._refresh(now_ns)  # so that unmeasured replicas do not seem slow or fast by comparison
        self._settle(replica, routed, is_computed=True)

    def end(
        self,
        replica: Replica,
        routed: RoutedRequest,
        now_ns: int,
        *,
        output_tokens: int | None = None,
        has_failed: bool = False,
        is_computed: bool = False,
    ) -> None:
        """Record the end of a request; `has_failed`: by the replica's fault. May be called repeatedly.

        `is_computed`: its prompt was computed, even if no first token was seen.
        """
        is_new = not routed.is_ended and routed.first_ns is None
        replica.end(routed, now_ns, output_tokens=output_tokens, has_failed=has_failed)
        if is_new:
            self._settle(replica, routed, is_computed=is_computed)

    def status(self, now_ns: int) -> dict[str, object]:
        """Return the pool's state for GET /ready."""
        return {
            "policy": self.policy_name,
            "decisions": self.decisions,
            "blocks": self.index.blocks,
            "refused_blocks": self.index.refused_blocks,
            "replicas": {replica.id: replica.status(now_ns) for replica in self.replicas},
        }

    def _refresh(self, now_ns: int) -> None:
        """Update every replica's pace to the current time."""
        self._refreshed_ns = now_ns
        self._refreshed_pace_ns = self._pace.ns_per_token
        for replica in self.replicas:
            replica.refresh(now_ns)

    def _settle(self, replica: Replica, routed: RoutedRequest, *, is_computed: bool) -> None:
        """Remove a request's expected blocks, and its assumed ones if its prompt was not computed."""
        if routed.expected is None:
            return
        bit, keys = routed.expected
        routed.expected = None
        if not routed.is_assumed:
            self.index.unexpect(bit, keys)
            if is_computed and not replica.is_exact and bit == replica.bit:
                self.index.assume(bit, routed.keys)  # its cache events have stopped meanwhile
        elif not is_computed:
            self.index.unassume(bit, keys)

    def _note_places(self) -> None:
        self._places = {one.bit: place for place, one in enumerate(self.replicas)}
        self._by_name = {one.id: place for place, one in enumerate(self.replicas)}
