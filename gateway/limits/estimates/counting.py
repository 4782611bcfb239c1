"""Input tokens without a tokenizer: an estimate from the body's size, calibrated by the counts that targets report."""

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

IMAGE_BYTES: Final = 3060  # bytes of an image in a body: 765 tokens of 4 bytes, OpenAI's count of 1024 x 1024 pixels
MAX_PAIRS: Final = 8192
MAX_IMAGES: Final = 1024  # number of images searched for in a body
ENOUGH_REPORTS: Final = 8

_START_BYTES_PER_TOKEN: Final = 4.0
_START_ERROR: Final = 0.25  # added to the measured error, divided by the number of reports
_WEIGHT: Final = 0.05  # weight of the newest report in the moving average: about the last 20 requests
_FEW_REPORTS: Final = round(1 / _WEIGHT)  # until then each report has a greater weight
_MAX_RATIO: Final = 64.0
_MAX_ERROR: Final = 4.0
# Twice the mean absolute error is too low for 6 % of the requests if bytes per token vary by 5 %, and for 10 % if they
# vary by 20 % (log-normal, as the test shows).
_MARGIN_ERRORS: Final = 2.0
_SEMICOLON: Final = ord(";")
_BASE64: Final = b";base64,"
_MAX_HEAD_BYTES: Final = 100
# A data URL counts as an image only in an image field: in a text it is text, and is billed as such.
_IMAGE_HEAD: Final = re.compile(rb'"(?:image_)?url"\s*:\s*"data:image\\?/[\w.+-]{1,40}$')


def prompt_bytes(body: bytes) -> int:
    """Return a body's size in bytes for estimates; each image in it, as a data URL, counts as 3060 bytes.

    Only the first few hundred images are recognised: a longer search would delay every other request.
    """
    # Searching one byte is many times faster than seven, and few bodies contain it. With `in`, a number is searched:
    # bytes are first tried as a number, which costs an exception.
    if _SEMICOLON not in body or body.find(_BASE64) < 0:
        return len(body)
    size, place = len(body), 0
    for _ in range(MAX_IMAGES):
        found = body.find(_BASE64, place)
        if found < 0:
            break
        place = found + len(_BASE64)
        if _IMAGE_HEAD.search(body[max(found - _MAX_HEAD_BYTES, 0) : found]):
            end = body.find(b'"', place)
            if end < 0:
                break
            size += IMAGE_BYTES - (end - place)
            place = end
    return size


def sound_of(model: str) -> str:
    """Return the name for learning a model's bytes per millisecond of audio, separate from its bytes per token."""
    return f"{model} sound"


class Ratio:
    """The moving average of bytes per token, and of its error just before each report."""

    __slots__ = ("bytes_per_token", "error", "reports")

    def __init__(self) -> None:
        self.bytes_per_token = _START_BYTES_PER_TOKEN
        self.error = 0.0
        self.reports = 0

    def add(self, ratio: float) -> None:
        self.reports += 1
        known = self.bytes_per_token
        off = ratio / known - 1 if ratio > known else 1 - ratio / known
        if off > _MAX_ERROR:
            off = _MAX_ERROR
        if self.reports > _FEW_REPORTS:
            self.error += _WEIGHT * (off - self.error)
            self.bytes_per_token = known + _WEIGHT * (ratio - known)
            return
        # The first reports are averaged with equal weight.
        if self.reports > 1:
            self.error += (off - self.error) / (self.reports - 1)
        self.bytes_per_token = known + (ratio - known) / self.reports

    @property
    def margin(self) -> float:
        return _MARGIN_ERRORS * (self.error + _START_ERROR / max(self.reports, 1))


_UNKNOWN: Final = Ratio()


class TokenEstimator:
    """Learns bytes per input token of each model, and of each tenant's requests to it, from reported usage.

    A tenant's requests have their own language and format; until there are 8 reports, the model's average is used.
    Sizes are those of `prompt_bytes`, both for learning and for estimating.
    """

    def __init__(self, max_pairs: int = MAX_PAIRS) -> None:
        self._max_pairs = max_pairs
        # By (tenant, model) and, over all tenants, (model,); the most recently updated is last.
        self._ratios: OrderedDict[tuple[str, ...], Ratio] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ratios)

    def learn(self, model: str, request_bytes: int, input_tokens: int, tenant: str = "") -> None:
        """Update the moving averages with a reported count."""
        if input_tokens > 0 and request_bytes > 0:
            learn_ratio(self.ratios(model, tenant), request_bytes, input_tokens)

    def ratios(self, model: str, tenant: str = "") -> list[Ratio]:
        """Return the averages of a model, and of a tenant's requests to it, for `learn_ratio` to update."""
        found: list[Ratio] = []
        for key in ((model,), (tenant, model)) if tenant else ((model,),):
            known = self._ratios.get(key)
            if known is None:
                known = self._ratios[key] = Ratio()
                if len(self._ratios) > self._max_pairs:
                    self._ratios.popitem(last=False)
            else:
                self._ratios.move_to_end(key)
            found.append(known)
        return found

    def estimate(self, model: str, request_bytes: int, tenant: str = "") -> int:
        """Estimate a request's input tokens from the size of its body; at least one."""
        return max(1, round(request_bytes / self._ratio(tenant, model).bytes_per_token))

    def upper(self, tenant: str, model: str, request_bytes: int) -> int:
        """Return an upper estimate that at most one request in ten exceeds; at least one."""
        bytes_per_token, factor = self.scale(tenant, model)
        return upper_tokens(request_bytes, bytes_per_token, factor)

    def scale(self, tenant: str, model: str) -> tuple[float, float]:
        """Return the basis of `upper`: bytes per token, and the factor of the upper estimate."""
        known = self._ratio(tenant, model)
        return known.bytes_per_token, 1 + known.margin

    def error(self, tenant: str, model: str) -> float | None:
        """Return the mean absolute error of estimates as a share of the reported count; `None` before two reports."""
        known = self._ratio(tenant, model)
        return known.error if known.reports > 1 else None

    def _ratio(self, tenant: str, model: str) -> Ratio:
        known = self._ratios.get((tenant, model))
        if known is None or known.reports < ENOUGH_REPORTS:
            known = self._ratios.get((model,), _UNKNOWN)
        return known


def upper_tokens(request_bytes: int, bytes_per_token: float, factor: float) -> int:
    """Return the upper estimate of a body's tokens, rounded to the nearest; at least one."""
    return int(request_bytes / bytes_per_token * factor + 0.5) or 1


def learn_ratio(ratios: Iterable[Ratio], request_bytes: int, input_tokens: int) -> None:
    """Update moving averages with a reported count. Both numbers are above zero."""
    ratio = request_bytes / input_tokens
    if ratio > _MAX_RATIO:
        ratio = _MAX_RATIO
    for known in ratios:
        known.add(ratio)
