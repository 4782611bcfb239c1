"""Amounts, scopes and words of limits and budgets, over HTTP and in the YAML file."""

from decimal import Decimal
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from contracts.rules.limits import MAX_AMOUNT
from contracts.rules.rule_words import MAX_GPU_MILLISECONDS, MAX_USD

_MAX_URL = 500


def _only_usd(currency: object) -> object:
    if currency != "USD":
        raise ValueError("amounts are in USD; convert the amount, and leave currency out or set USD")
    return currency


def _webhook(url: str) -> str:
    if not url:
        return url
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or a broken IPv6 address
        is_usable = False
    if not is_usable:
        raise ValueError("a webhook is an http:// or https:// URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a webhook's URL may hold no user or password; calls are signed instead")
    return url


def _rising(thresholds: list[int]) -> list[int]:
    if thresholds != sorted(set(thresholds)):
        raise ValueError("thresholds must rise, each once, such as [50, 80, 100]")
    return thresholds


Currency = Annotated[Literal["USD"], BeforeValidator(_only_usd), Field(description="Only USD is supported")]
Amount = Annotated[int, Field(ge=0, le=MAX_AMOUNT, strict=True)]
LimitUsd = Annotated[Decimal, Field(ge=0, le=MAX_USD, decimal_places=12, allow_inf_nan=False)]
BudgetUsd = Annotated[Decimal, Field(gt=0, le=MAX_USD, decimal_places=12, allow_inf_nan=False)]
GpuMilliseconds = Annotated[int, Field(ge=1, le=MAX_GPU_MILLISECONDS, strict=True)]
Subject = Annotated[
    str,
    StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=300),
    Field(
        description="Who it applies to: team; team/project; key id; user; tag as name=value. '*' counts each on its own"
    ),
]
Thresholds = Annotated[
    list[Annotated[int, Field(ge=1, le=1000, strict=True)]],
    AfterValidator(_rising),
    Field(max_length=20, description="Percent of the amount at which to notify, once each per period"),
]
WebhookUrl = Annotated[
    str,
    StringConstraints(pattern=r"^[^\x00-\x20\x7f]*$", max_length=_MAX_URL),
    AfterValidator(_webhook),
    Field(description="URL that gets a signed POST at each threshold; redirects are not followed"),
]
