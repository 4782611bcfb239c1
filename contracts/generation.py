"""What a model gives back, whichever way it is reached: deltas while it runs, a result when it ends."""

import msgspec

from contracts.records import CountMethod, GapClock, GpuShare
from contracts.usage import UNKNOWN_USAGE, Usage


class Delta(msgspec.Struct, frozen=True, gc=False):
    """A piece of one choice. `tokens` counts the generated tokens it carries (0 for a bare role or end)."""

    tokens: int
    text: str = ""
    reasoning: str = ""
    index: int = 0
    finish_reason: str | None = None


class Result(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a call to a model ended. Usage that was not reported stays unknown."""

    usage: Usage = UNKNOWN_USAGE
    count_method: CountMethod = "none"
    finish_reason: str = ""
    model: str = ""  # as the target names what it served
    gap_clock: GapClock = "gateway"
    engine_output_tokens: int | None = None
    gpu: GpuShare | None = None
