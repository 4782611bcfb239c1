"""A request that waits for a pool, and the pool's capacity."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from contracts.rules.limits import PRIORITY_CLASSES, PriorityClass

if TYPE_CHECKING:
    from gateway.limits.queue.tenant import Tenant

RequestState = Literal["new", "waiting", "running", "done", "shed", "withdrawn"]

RANKS: Final = {name: rank for rank, name in enumerate(PRIORITY_CLASSES)}  # 0 goes first


class QueuedRequest:
    """One request as the queue knows it.

    `reserved_tokens` is the maximum that it may hold in the pool's KV cache: its prompt and its maximum output.
    `weight` is its tenant's share. The other fields belong to the queue.
    """

    __slots__ = (
        "arrived_ns", "charged_input", "charged_output", "input_tokens", "is_long", "level", "passed_tokens", "rank",
        "reserved_tokens", "sequence", "state", "tenant", "tenant_id", "weight",
    )  # fmt: skip

    # Set by the queue that accepts the request, because every request passes here.
    arrived_ns: int
    charged_input: int
    is_long: bool
    passed_tokens: int  # tokens of the requests that passed it while it was first and did not fit
    sequence: int
    tenant: "Tenant"

    def __init__(
        self,
        tenant_id: str,
        input_tokens: int,
        reserved_tokens: int,
        priority: PriorityClass = "standard",
        weight: int = 1,
    ) -> None:
        self.tenant_id = tenant_id
        self.input_tokens = input_tokens
        self.reserved_tokens = reserved_tokens
        self.rank = self.level = RANKS[priority]  # as requested, and after ageing
        self.weight = weight
        self.state: RequestState = "new"
        self.charged_output = 0

    @property
    def priority(self) -> PriorityClass:
        """Return the class that the request asked for."""
        return PRIORITY_CLASSES[self.rank]


@dataclass(frozen=True, slots=True)
class PoolRoom:
    """The maximum number of requests and tokens that a pool can run at once (`None`: unbounded), and how much of it is
    used by others than this queue.
    """

    max_in_flight: int | None = None
    max_tokens: int | None = None
    others_in_flight: int = 0
    others_tokens: int = 0
