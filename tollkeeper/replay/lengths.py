"""Lengths of replayed requests: as recorded, scaled on request, and within the model's context."""

from dataclasses import dataclass
from typing import Final

from contracts.errors import ConfigurationError
from tollkeeper.replay.trace import TraceRequest

# Prompts have about the wanted number of tokens, so one that just fits might not.
_FILL: Final = 0.95
_MIN_CONTEXT_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class Lengths:
    """What one request will have: tokens of input and output, at least one of each."""

    input_tokens: int
    output_tokens: int
    is_scaled_to_fit: bool = False


@dataclass(frozen=True, slots=True)
class LengthRule:
    """Multiplies every length by `scale`; what then exceeds the context is scaled down once more, to fit it.

    `context_tokens` is `None` if the model's context is not known: then nothing is taken to exceed it.
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
        """Return a request's lengths. Input and output shrink by the same factor, so that their ratio stays."""
        wanted_in, wanted_out = request.input_tokens * self.scale, request.output_tokens * self.scale
        room = None if self.context_tokens is None else int(self.context_tokens * _FILL)
        fits = room is None or wanted_in + wanted_out <= room
        factor = 1.0 if fits or room is None else room / (wanted_in + wanted_out)
        return Lengths(
            input_tokens=max(1, int(wanted_in * factor)),
            output_tokens=max(1, int(wanted_out * factor)),
            is_scaled_to_fit=not fits,
        )
