"""Computes lengths of replayed requests: as recorded, scaled, and limited to the model's context."""

from dataclasses import dataclass
from typing import Final

from contracts.errors import ConfigurationError
from tollkeeper.replay.trace import TraceRequest

# Margin, because prompts have only approximately the requested number of tokens.
_FILL: Final = 0.95
_MIN_CONTEXT_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class Lengths:
    """A request's input and output length in tokens, each at least 1."""

    input_tokens: int
    output_tokens: int
    is_scaled_to_fit: bool = False


@dataclass(frozen=True, slots=True)
class LengthRule:
    """Multiplies all lengths by `scale`, then scales down requests that exceed the model's context.

    `context_tokens` is `None` if the model's context is unknown; then there is no limit.
    """

    scale: float = 1.0
    context_tokens: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 100:
            raise ConfigurationError(f"lengths can be scaled by more than 0 and at most 100, not by {self.scale:g}")
        if self.context_tokens is not None and self.context_tokens < _MIN_CONTEXT_TOKENS:
            raise ConfigurationError(
                f"a context of {self.context_tokens} tokens is too short; a trace needs {_MIN_CONTEXT_TOKENS} or more"
            )

    def apply(self, request: TraceRequest) -> Lengths:
        """Return a request's lengths. Input and output are scaled by the same factor."""
        wanted_in, wanted_out = request.input_tokens * self.scale, request.output_tokens * self.scale
        room = None if self.context_tokens is None else int(self.context_tokens * _FILL)
        fits = room is None or wanted_in + wanted_out <= room
        factor = 1.0 if fits or room is None else room / (wanted_in + wanted_out)
        return Lengths(
            input_tokens=max(1, int(wanted_in * factor)),
            output_tokens=max(1, int(wanted_out * factor)),
            is_scaled_to_fit=not fits,
        )
