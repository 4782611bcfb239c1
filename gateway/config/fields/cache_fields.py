"""Fields of response cache settings, for HTTP and the YAML file."""

from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from contracts.serving.caching import MAX_ANSWER_BYTES, MAX_TTL_SECONDS, CacheMode, CacheShare


class CacheFields(BaseModel):
    """Response cache settings of a model or route; see `contracts.serving.caching.CachePolicy`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: CacheMode = Field(default="exact", description="semantic ignores a message's opening and final mark")
    ttl_seconds: int = Field(default=300, ge=1, le=MAX_TTL_SECONDS, description="How long a response is used")
    similarity: float = Field(
        default=0.95, ge=0, le=1, allow_inf_nan=False, description="Minimum cosine of two messages, semantic mode"
    )
    share: CacheShare = Field(default="tenant", description="Who within the tenant shares a response")
    hit_price: Decimal = Field(
        default=Decimal(0), ge=0, le=1, decimal_places=6, description="Share of an answer's price that a hit costs"
    )
    max_answer_bytes: int = Field(default=1 << 20, ge=1, le=MAX_ANSWER_BYTES, description="Larger ones are not cached")

    def stated(self) -> dict[str, Any]:
        """Return the stated fields as plain data."""
        return self.model_dump(mode="json")
