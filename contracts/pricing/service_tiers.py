"""Names of providers' service tiers, as requests ask for them, answers report them and price cards price them."""

import re
from collections.abc import Container
from typing import Final

BATCH: Final = "batch"  # the service tier of requests in a batch
ANY_TIER: Final = "*"  # in a price card's service tiers: those that it does not name
UNDECIDED: Final = "auto"  # the provider chooses, and its answer states the choice
UNKNOWN_TIER: Final = "unknown"  # replaces an invalid name; only ANY_TIER prices it
MAX_TIER_LENGTH: Final = 40
# Providers' names for the standard tier.
STANDARD_TIERS: Final = frozenset({"", "default", "standard", "standard_only", "on_demand"})
VARIANT_MARK: Final = "image."  # prefix of the tiers that stand for kinds of images: image.QUALITY.SIZE, or one of both
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def tier_name(said: str) -> str:
    """Return the service tier in a request or an answer, as price cards name it; empty: the standard one."""
    name = said.strip().lower()
    if name in STANDARD_TIERS:
        return ""
    return name if len(name) <= MAX_TIER_LENGTH and _NAME.fullmatch(name) else UNKNOWN_TIER


def reported_tier(*said: object) -> str | None:
    """Return the service tier that an answer reports in any of its fields; `None` if it reports none."""
    names = [tier_name(one) for one in said if isinstance(one, str) and one]
    known = [name for name in names if name != UNDECIDED]
    return next((name for name in known if name), "" if known else None)


def image_variant(quality: str | None, size: str | None) -> str:
    """Return the tier for images of a quality and a size, such as "image.hd.1024x1024".

    Empty if neither is stated, or if the provider chooses ("auto").
    """
    said = [one.strip().lower() for one in (quality, size) if one]
    known = [one for one in said if one != UNDECIDED]
    return tier_name(VARIANT_MARK + ".".join(known)) if known else ""


def nearest_variant(name: str, priced: Container[str]) -> str:
    """Return which of the priced kinds of images one is sold as: itself, its quality, its size; empty: any image."""
    if name in priced:
        return name
    quality, _, size = name.removeprefix(VARIANT_MARK).partition(".")
    return next((one for one in (VARIANT_MARK + quality, VARIANT_MARK + size) if one in priced), "")
