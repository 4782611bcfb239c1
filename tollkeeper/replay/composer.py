"""Builds chat requests from a trace: prompt, forced answer length, and the payer's key."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tollkeeper.replay.chat import Chat
from tollkeeper.replay.lengths import LengthRule
from tollkeeper.replay.payers import Assignment, Payer
from tollkeeper.replay.player import Timed
from tollkeeper.replay.prompt import PromptWriter
from tollkeeper.replay.served_model import ServedModel
from tollkeeper.replay.trace import Trace, TraceRequest

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Pace:
    """The answer speed of a scripted model, in milliseconds; by default it answers immediately."""

    first_ms: float = 0.0
    first_ms_per_input_token: float = 0.0
    gap_ms: float = 0.0


AT_ONCE: Final = Pace()


@dataclass(frozen=True, slots=True)
class Composer:
    """Builds the requests of one run."""

    model: ServedModel
    writer: PromptWriter
    rule: LengthRule
    assignment: Assignment
    payers: Sequence[Payer]
    pace: Pace = AT_ONCE

    def chats(self, trace: Trace, speed: float, on_scaled: Callable[[], None] = lambda: None) -> Iterator[Timed[Chat]]:
        """Yield the trace's chats in order, with their times divided by `speed`.

        `on_scaled` is called for each request that was shortened to fit the model's context.
        """
        for number, request in enumerate(trace.requests):
            lengths = self.rule.apply(request)
            if lengths.is_scaled_to_fit:
                on_scaled()
            prompt = self.writer.write(number, lengths.input_tokens, request.prefix_blocks)
            body = chat_body(self.model, prompt, lengths.input_tokens, lengths.output_tokens, self.pace, request)
            payer = self.payers[self.assignment.index(number, request.client)]
            chat = Chat(number, payer.place.tenant, payer.secret, body, lengths.output_tokens)
            yield Timed(request.at_seconds / speed, chat)


def chat_body(
    model: ServedModel,
    prompt: str,
    input_tokens: int,
    output_tokens: int,
    pace: Pace = AT_ONCE,
    request: TraceRequest | None = None,
) -> bytes:
    """Return a chat's body whose answer has exactly `output_tokens`, on servers with two parameters of vLLM."""
    if model.is_scripted:
        first_ms = pace.first_ms + pace.first_ms_per_input_token * input_tokens
        prompt += f" [[script tokens={output_tokens} first_ms={first_ms:.0f} gap_ms={pace.gap_ms:.0f}]]"
    body: dict[str, object] = {
        "model": model.id,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request is not None and request.client:
        body["user"] = request.client
    return _encoder.encode(body)
