"""Output of a model: deltas while it runs, a result at the end."""

import msgspec

from contracts.engine.wire import TokenLogprob
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.records import CountMethod, GapClock, GpuShare


class Delta(msgspec.Struct, frozen=True, gc=False):
    """A piece of one choice. `tokens` counts its generated tokens (0 for a bare role or end).

    `times_ns` has one entry per token, by the clock of the engine that generated them; empty if the engine reports
    none. `reasoning_tokens` are those of `tokens` known to be reasoning: tokens of a piece with both kinds of text, or
    with none, do not count.
    """

    tokens: int
    text: str = ""
    reasoning: str = ""
    index: int = 0
    finish_reason: str | None = None
    times_ns: list[int] = []
    tool_calls: bytes = b""  # a JSON array in OpenAI's streaming format
    logprobs: list[TokenLogprob] = []
    reasoning_tokens: int = 0
    refusal: str = ""  # text in place of an answer, if the server reports it separately
    stop: str = ""  # the stop string that ended the choice, if the target reports it
    # A JSON array of Anthropic's blocks: the reasoning, with its signature.
    thinking_blocks: bytes = b""


class Continuation(msgspec.Struct, frozen=True):
    """A partial answer with all of its tokens known, so that another replica can continue it.

    The hashes (SHA-256, hex) identify weights, tokenizer and template: only the same model may continue the answer.
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
    """The result of a call to a model. Usage that was not reported stays unknown; so do the other counts."""

    usage: Usage = UNKNOWN_USAGE
    count_method: CountMethod = "none"
    finish_reason: str = ""
    model: str = ""  # the target's name for what it served
    gap_clock: GapClock = "gateway"
    adapter: str = ""
    engine_output_tokens: int | None = None
    recompute_tokens: int | None = None
    overrun_tokens: int | None = None
    wasted_tokens: int | None = None
    queue_ns: int | None = None
    gpu: GpuShare | None = None
    continuation: Continuation | None = None  # of a call that failed before its end
    cold_start_ns: int | None = None  # how long it waited for its model to wake or load
    service_tier: str | None = None  # reported by the target; "": the standard one; `None`: not reported
    provider_usage: str = ""  # the usage object as sent by a target that speaks the client's own API
    answer_bytes: int | None = None  # size of a complete answer's text in UTF-8, if its target did not count its tokens
    answer_words: int = 0  # words of that text: a lower bound of its tokens
