"""Input tokens of requests whose target reported none: a calibrated estimate, marked as one on the record."""

from typing import Final

_START_BYTES_PER_TOKEN: Final = 4.0
_WEIGHT: Final = 0.05  # of the newest report in the moving average: about the last 20 requests
_MAX_RATIO: Final = 64.0


class TokenEstimator:
    """Learns bytes per input token for each model from the usage that its targets report."""

    def __init__(self) -> None:
        self._bytes_per_token: dict[str, float] = {}

    def learn(self, model: str, request_bytes: int, input_tokens: int) -> None:
        """Take a reported count into the model's moving average."""
        if input_tokens <= 0 or request_bytes <= 0:
            return
        ratio = min(request_bytes / input_tokens, _MAX_RATIO)
        known = self._bytes_per_token.get(model)
        self._bytes_per_token[model] = ratio if known is None else known + _WEIGHT * (ratio - known)

    def estimate(self, model: str, request_bytes: int) -> int:
        """Estimate a request's input tokens from the size of its body; at least one."""
        return max(1, round(request_bytes / self._bytes_per_token.get(model, _START_BYTES_PER_TOKEN)))
