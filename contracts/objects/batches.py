"""Batches of requests: what an application asked for, how far it has come, and what became of each line."""

from typing import Final, Literal

import msgspec

from contracts.access.owner import Owner
from contracts.errors import Unavailable

BatchState = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"
]

BatchEnd = Literal["completed", "failed", "expired", "cancelled"]

WINDOW: Final = "24h"
WINDOW_SECONDS: Final = 86_400
MAX_LINES: Final = 50_000
# States in which a gateway has something to do.
LIVE_STATES: Final[tuple[BatchState, ...]] = ("validating", "in_progress", "finalizing", "cancelling")


class LeaseLost(Unavailable):
    """Another gateway has taken the batch over: what this one still does for it must not be kept."""

    code = "batch_taken_over"


class BatchFault(msgspec.Struct, frozen=True):
    """The error that refused a whole batch; `line` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Payer(msgspec.Struct, frozen=True):
    """The key that pays for a batch: by its digest at the time, and by its id, which outlives a rotation."""

    digest: bytes
    key_id: str


class Lease(msgspec.Struct, frozen=True):
    """A gateway's hold on a batch, until a moment (Unix nanoseconds)."""

    owner: str = ""
    until_ns: int = 0


NO_LEASE: Final = Lease()


class BatchUsage(msgspec.Struct, frozen=True):
    """Tokens as the answers reported them."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def plus(self, other: "BatchUsage") -> "BatchUsage":
        """Add field by field."""
        return BatchUsage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


class Batch(msgspec.Struct, frozen=True):
    """A batch. Times are Unix seconds, `None` if that has not happened."""

    id: str
    owner: Owner
    payer: Payer
    endpoint: str  # the path that its lines are for: "/v1/chat/completions"
    input_file_id: str
    created_unix: int
    expires_unix: int
    state: BatchState = "validating"
    metadata: dict[str, str] | None = None
    tags: str = ""  # of its requests, as the header has them
    output_expires_after_seconds: int | None = None
    in_progress_unix: int | None = None
    finalizing_unix: int | None = None
    ended_unix: int | None = None  # completed, failed, expired or cancelled, as `state` says
    cancelling_unix: int | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    model: str = ""  # where all lines name the same one
    faults: tuple[BatchFault, ...] = ()
    usage: BatchUsage = BatchUsage()
    output_file_id: str | None = None
    error_file_id: str | None = None
    outcome: BatchEnd | None = None  # decided, and perhaps not written yet

    @property
    def is_live(self) -> bool:
        """Return whether it has yet to come to its end."""
        return self.state in LIVE_STATES

    @property
    def waiting(self) -> int:
        """Return how many of its lines have no outcome yet."""
        return self.total - self.completed - self.failed


class NewLine(msgspec.Struct, frozen=True):
    """A line as its file has it: `number` from 1, and the body of the request."""

    number: int
    custom_id: str
    request: bytes


class LineOutcome(msgspec.Struct, frozen=True):
    """What became of a line: the JSON that stands for it in the output file, or in the error file."""

    number: int
    result: bytes
    is_failed: bool
    usage: BatchUsage = BatchUsage()
