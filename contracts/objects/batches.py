"""Batches of requests: what an application asked for, the progress, and the result of each line."""

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
# States in which a gateway has work to do.
LIVE_STATES: Final[tuple[BatchState, ...]] = ("validating", "in_progress", "finalizing", "cancelling")


class LeaseLost(Unavailable):
    """Another gateway has taken the batch over: this one's further results must not be stored."""

    code = "batch_taken_over"


class BatchFault(msgspec.Struct, frozen=True):
    """The error that refused a whole batch; `line` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Payer(msgspec.Struct, frozen=True):
    """The key that pays for a batch: its digest at the time, and its id, which outlives a rotation."""

    digest: bytes
    key_id: str


class Lease(msgspec.Struct, frozen=True):
    """A gateway's lease on a batch, until a time (Unix nanoseconds)."""

    owner: str = ""
    until_ns: int = 0


NO_LEASE: Final = Lease()


class BatchUsage(msgspec.Struct, frozen=True):
    """Tokens as reported by the answers."""

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
    """A batch. Times are Unix seconds, `None` if the event has not happened."""

    id: str
    owner: Owner
    payer: Payer
    endpoint: str  # the path of its lines: "/v1/chat/completions"
    input_file_id: str
    created_unix: int
    expires_unix: int
    state: BatchState = "validating"
    metadata: dict[str, str] | None = None
    tags: str = ""  # of its requests, in the header's format
    output_expires_after_seconds: int | None = None
    in_progress_unix: int | None = None
    finalizing_unix: int | None = None
    ended_unix: int | None = None  # completed, failed, expired or cancelled, as in `state`
    cancelling_unix: int | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    model: str = ""  # if all lines name the same one
    faults: tuple[BatchFault, ...] = ()
    usage: BatchUsage = BatchUsage()
    output_file_id: str | None = None
    error_file_id: str | None = None
    outcome: BatchEnd | None = None  # decided, but perhaps not written yet

    @property
    def is_live(self) -> bool:
        """Return whether the batch has not ended yet."""
        return self.state in LIVE_STATES

    @property
    def waiting(self) -> int:
        """Return how many of its lines have no result yet."""
        return self.total - self.completed - self.failed


class NewLine(msgspec.Struct, frozen=True):
    """A line as its file has it: `number` from 1, and the body of the request."""

    number: int
    custom_id: str
    request: bytes


class LineOutcome(msgspec.Struct, frozen=True):
    """The result of a line: its JSON in the output file, or in the error file."""

    number: int
    result: bytes
    is_failed: bool
    usage: BatchUsage = BatchUsage()
