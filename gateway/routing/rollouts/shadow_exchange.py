"""The exchange of a shadow copy: no client sent it, and no client gets its answer."""

from dataclasses import dataclass

from gateway.apis.batches.line_exchange import LineExchange


@dataclass(frozen=True, slots=True)
class Original:
    """What the incumbent did with the request that was copied. `None`: unknown."""

    request_id: str
    text: str | None
    refused: bool | None
    ttft_ms: float | None
    duration_ms: float | None
    output_tokens: int | None
    cost_usd: float | None


class ShadowExchange(LineExchange):
    """The exchange of one copy of the incumbent's `original`."""

    __slots__ = ("by_meaning", "original")

    def __init__(self, path: str, body: bytes, original: Original, *, by_meaning: bool) -> None:
        # The copy neither uses nor fills the cache: the answer must be the candidate's own.
        super().__init__(path, body, {b"cache-control": b"no-store"})
        self.original = original
        self.by_meaning = by_meaning
