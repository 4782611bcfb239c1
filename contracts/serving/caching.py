"""Response cache policy of a model or route: which answers are cached, how long, for whom, at what price."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from contracts.errors import ConfigurationError

CacheMode = Literal["exact", "semantic"]
CacheShare = Literal["tenant", "project", "key", "user"]
CacheOutcome = Literal["", "miss", "hit", "semantic_hit"]  # as on the record; empty: no cache was used

MAX_TTL_SECONDS: Final = 30 * 86_400
MAX_ANSWER_BYTES: Final = 16 << 20
_PARTS: Final = 10**6  # prices of hits are stored in millionths of the answer's own


class CachePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """How answers are cached. No answer is ever returned to another tenant than the one it was generated for.

    `exact` matches a request that is equal in everything that its answer depends on. `semantic` also matches a request
    whose last message has the same words in the same order after a different opening, at a cosine of `similarity` or
    more, if everything else is equal. `share` is the scope of sharing within a tenant: the whole tenant, a project, a
    key, or one end user of a key. `hit_price` is the share of the answer's price that a cached one costs, 0 to 1, to
    six places.
    """

    mode: CacheMode = "exact"
    ttl_seconds: Annotated[int, Meta(ge=1, le=MAX_TTL_SECONDS)] = 300
    similarity: Annotated[float, Meta(ge=0, le=1)] = 0.95
    share: CacheShare = "tenant"
    hit_price: Decimal = Decimal(0)
    max_answer_bytes: Annotated[int, Meta(ge=1, le=MAX_ANSWER_BYTES)] = 1 << 20

    def __post_init__(self) -> None:
        price = self.hit_price
        if not price.is_finite() or not 0 <= price <= 1:
            raise ValueError(f"hit_price is {price}; it must be 0 (free) to 1 (the whole price)")
        if price * _PARTS % 1:
            raise ValueError(f"hit_price is {price}; it may have six decimal places")

    def price_of(self, answer_pico_usd: int) -> int:
        """Return the price of a hit for an answer with this price, in pico-USD, rounded up."""
        return -(-answer_pico_usd * int(self.hit_price * _PARTS) // _PARTS)


def cache_policy(given: Mapping[str, object] | None) -> CachePolicy | None:
    """Build a policy from plain data; `None` if there is none. Raises ConfigurationError, naming the field."""
    if not given:
        return None
    try:
        return msgspec.convert(given, CachePolicy, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"cache: {error}", param="cache") from error
