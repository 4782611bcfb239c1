"""A worker's steps from launch until they are reported to the host."""

from collections.abc import Mapping
from typing import Any, Final

from backends.engine.vllm_engine.metering.batch_reader import ScheduledBatch
from backends.engine.vllm_engine.metering.composition import Composition, Repeat
from backends.engine.vllm_engine.metering.gpu_clock import StepEvents


class SteadyStep:
    """A small step of the same sequences as the one before. Without a first event it is timed from that step's end."""

    __slots__ = ("composition", "events", "has_first", "is_ended", "launched_ns")

    has_drafts: Final = False
    has_forward: Final = False
    awaits_output: Final = False
    sampled: Final = None

    def __init__(self, events: StepEvents | None, launched_ns: int, has_first: bool) -> None:
        self.events = events
        self.launched_ns = launched_ns
        self.has_first = has_first
        self.is_ended = False
        self.composition: Repeat | None = None

    @property
    def is_launched(self) -> bool:
        """Return whether its batch has been read."""
        return self.composition is not None


class MeteredStep:
    """Any other step; its composition is read after the launch."""

    __slots__ = (
        "awaits_output",
        "batch",
        "composition",
        "events",
        "has_drafts",
        "has_forward",
        "is_ended",
        "is_launched",
        "launched_ns",
        "sampled",
    )

    def __init__(self, batch: ScheduledBatch | None, events: StepEvents | None, launched_ns: int) -> None:
        self.batch = batch  # `None`: a dummy step, or the batch has been read
        self.events = events  # `None`: nothing to measure, or no free events
        self.launched_ns = launched_ns
        self.composition: Composition | Repeat | None = None
        self.has_forward = self.is_launched = self.is_ended = False
        # Whether it verifies drafts, so that its output must be read to count the accepted ones.
        self.has_drafts = batch is not None and bool(batch.scheduled_spec_decode_tokens)
        self.awaits_output = False  # whether its output, with the accepted drafts, is still to come
        self.sampled: Mapping[str, int] | None = None

    @property
    def tokens(self) -> int:
        """Return the number of tokens that the step computes; 0 once its batch has been read."""
        return self.batch.total_num_scheduled_tokens if self.batch is not None else 0

    def note_output(self, output: Any) -> None:
        """Record how many tokens each sequence got, from vLLM's ModelRunnerOutput."""
        names, tokens = getattr(output, "req_ids", None) or [], getattr(output, "sampled_token_ids", None) or []
        self.sampled = dict(zip(names, map(len, tokens), strict=False))
        self.awaits_output = False


Step = MeteredStep | SteadyStep
