"""Output of a model: deltas while it runs, a result at the end."""

import msgspec

from contracts.engine.wire import TokenLogprob
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.records import CountMethod, GapClock, GpuShare


class Delta(msgspec.Struct, frozen=True, gc=False):
    """A piece of one choice. `tokens` counts the generated tokens it carries (0 for a bare role or end).

    `times_ns` has one entry per token, on the clock of the engine that made them; empty if it does not say.
    `reasoning_tokens` are those of `tokens` that are known to be reasoning: what came with text of both kinds, or with
    none, is not.
    """

    tokens: int
    text: str = ""
    reasoning: str = ""
    index: int = 0
    finish_reason: str | None = None
    times_ns: list[int] = []
    tool_calls: bytes = b""  # a JSON array in OpenAI's streaming shape
    logprobs: list[TokenLogprob] = []
    reasoning_tokens: int = 0
    refusal: str = ""  # what is said in place of an answer, where a server keeps that apart
    stop: str = ""  # the stop string that ended the choice, where the target tells
    # A JSON array of Anthropic's blocks: the reasoning as well, with what its maker signed it with.
    thinking_blocks: bytes = b""


class Continuation(msgspec.Struct, frozen=True):
    """An answer that was cut off with every token of it known, so that another replica can go on.

    The hashes (SHA-256, hex) are of what the ids mean something to: only the same model may continue them.
    """

    model: str  # as the application named it
    token_ids: tuple[int, ...]
    weights_hash: str
    tokenizer_hash: str
    template_hash: str


class Vectors(msgspec.Struct, frozen=True, gc=False):
    """Embeddings: float32, little-endian, `dimensions` for each input, one after another."""

    dimensions: int
    data: bytes


class Result(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a call to a model ended. Usage that was not reported stays unknown; so do the other counts."""

    usage: Usage = UNKNOWN_USAGE
    count_method: CountMethod = "none"
    finish_reason: str = ""
    model: str = ""  # as the target names what it served
    gap_clock: GapClock = "gateway"
    adapter: str = ""
    engine_output_tokens: int | None = None
    recompute_tokens: int | None = None
    overrun_tokens: int | None = None
    wasted_tokens: int | None = None
    queue_ns: int | None = None
    gpu: GpuShare | None = None
    continuation: Continuation | None = None  # of a call that failed on the way
    cold_start_ns: int | None = None  # for how long it waited for its model to wake or to be loaded
    service_tier: str | None = None  # that the target says it answered at; "": the standard one; none: not said
    provider_usage: str = ""  # the usage object as a target of the client's own API sent it
    answer_bytes: int | None = None  # what a whole answer says, in UTF-8, where its target did not count its tokens
