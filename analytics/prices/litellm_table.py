"""Reads price cards from a file with LiteLLM's price table, which has more models than the catalogue, but no dates.

Without network access: the file is a snapshot, such as the one in the litellm package.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Final

from backends.signatures import check_signature
from contracts.errors import ConfigurationError, InvalidRequest, NotFound
from contracts.metering.usage import CACHE_READ_LEAVES, KINDS, MEDIA_LEAVES, Leaf
from contracts.pricing.prices import NewPrice, PriceCard, price_card
from contracts.pricing.service_tiers import BATCH

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PER_MTOK: Final = 1_000_000
_FINEST: Final = Decimal("0.000001")
_NOISE: Final = Decimal("1e-9")  # relative tolerance for computed floats in the file
# Fields by meter, narrowest first; suffixes of a threshold and a tier follow the name.
_FIELDS: Final[Mapping[Leaf, tuple[str, ...]]] = {
    "input_text": ("input_cost_per_token",),
    "cache_read_text": ("cache_read_input_token_cost",),
    "cache_write_5m": ("cache_creation_input_token_cost",),
    "cache_write_1h": ("cache_creation_input_token_cost_above_1hr",),
    "output_text": ("output_cost_per_token",),
    "output_reasoning": ("output_cost_per_reasoning_token", "output_cost_per_token"),
    **{
        leaf: (f"cache_read_input_{KINDS[leaf].medium}_token_cost", "cache_read_input_token_cost")
        if leaf in CACHE_READ_LEAVES
        else (f"{KINDS[leaf].group}_cost_per_{KINDS[leaf].medium}_token", f"{KINDS[leaf].group}_cost_per_token")
        for leaf in MEDIA_LEAVES
    },
}
# Fields of prices that a card cannot express: such a model is refused rather than priced too low.
_FOREIGN: Final = (
    *("tiered_pricing", "cost_per_second", "input_cost_per_second", "output_cost_per_second"),
    *("input_cost_per_character", "input_cost_per_query", "input_cost_per_video_per_second", "ocr_cost_per_page"),
)
# The same, unless the same content has a price per token too.
_FOREIGN_WITHOUT: Final = (
    ("input_cost_per_image", "input_cost_per_image_token"),
    ("output_cost_per_image", "output_cost_per_image_token"),
    ("input_cost_per_audio_per_second", "input_cost_per_audio_token"),
)
# Units of models of other media, by the table's `mode`: the meter, its quantity per unit, and the field. Entries with
# a price per token are excluded.
_BY_UNIT: Final[Mapping[str, tuple[Leaf, int, str]]] = {
    "image_generation": ("images", 1, "output_cost_per_image"),
    "audio_transcription": ("milliseconds", 1000, "input_cost_per_second"),
    "audio_speech": ("characters", 1, "input_cost_per_character"),
}
_CLIFFS: Final = {32: 32_000, 100: 100_000, 128: 128_000, 200: 200_000, 256: 256_000, 272: 272_000, 512: 512_000}

# The suffixes of service tiers, by their name on cards.
_TIERS: Final[Mapping[str, str]] = {
    BATCH: "_batches",
    "flex": "_flex",
    "priority": "_priority",
    "ultrafast": "_ultrafast",
}
_MULTIPLIERS: Final = "provider_specific_entry"  # factors on all prices, such as {"fast": 2.0}
_FAST: Final = "fast"
# The table's provider names to those of price lists and targets, if they differ.
_TABLE_PROVIDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "aws": ("bedrock",),
    "google": ("gemini", "vertex_ai"),
    "x-ai": ("xai",),
    "together": ("together_ai",),
    "fireworks": ("fireworks_ai",),
    "mistral_ai": ("mistral",),
    "moonshotai": ("moonshot",),
    "voyageai": ("voyage",),
}
# The table's names for parts of one provider's models: "vertex_ai-language-models", "bedrock_converse".
_FAMILIES: Final = ("bedrock", "vertex_ai", "cohere", "mistral")

Entry = Mapping[str, object]


class UnknownModel(NotFound):
    """The table lacks this model of this provider."""


def read_signed(path: Path | None, signature: Path | None, public_key: Path | None) -> "LitellmTable | None":
    """Read a table if a path is given, and check its signature if a key is given. Raises ConfigurationError, and
    InvalidRequest on a signature without the other two."""
    if signature is not None and (path is None or public_key is None):
        raise InvalidRequest("a signature needs --litellm and --public-key", param="signature")
    if path is not None and public_key is not None:
        check_signature(path, signature, public_key)
    return None if path is None else LitellmTable.read(path)


class LitellmTable:
    """The price table from one file. `version` identifies its content."""

    def __init__(self, entries: Mapping[str, Entry], version: str) -> None:
        self.version = version
        self._entries = entries

    @classmethod
    def read(cls, path: Path) -> "LitellmTable":
        """Read a snapshot. Raises ConfigurationError if the file is missing or not such a table."""
        try:
            text = path.read_bytes()
            entries = json.loads(text, parse_float=Decimal)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read as LiteLLM's price table; name its JSON file") from error
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise ConfigurationError(f"{path} is not LiteLLM's price table: it must hold an object for each model")
        return cls(entries, f"litellm-{sha256(text).hexdigest()[:8]}")

    def card(self, provider: str, upstream: str, *, model: str = "", seller: str = "") -> PriceCard:
        """Return the card of a provider's model, found with or without the provider's name as prefix.

        Models of other media have prices per unit. Raises NotFound without an entry or with price 0, which the table
        uses for free and for unknown; ConfigurationError for a chat price that a card cannot express (by time,
        character, image or ranges).
        """
        name = self._name_of(provider, upstream)
        if name is None:
            raise UnknownModel(f"{self.version} knows no model {upstream!r} of provider {provider!r}")
        entry = self._entries[name]
        by_unit = _price_by_unit(entry)
        if by_unit:
            return price_card(
                NewPrice(
                    model or upstream,
                    f"{self.version}/{name}/{model or upstream}",
                    by_unit,
                    valid_from=_BEGINNING,
                    provider=seller,
                )
            )
        without = (field for field, token in _FOREIGN_WITHOUT if entry.get(field) and not entry.get(token))
        foreign = next((field for field in (*_FOREIGN, *without) if entry.get(field)), None)
        if foreign is not None:
            raise ConfigurationError(f"{self.version} prices {name!r} by {foreign}, which a card cannot express")
        base = _prices(entry, "")
        if not base:
            raise NotFound(f"{self.version} has no price per token for {name!r}")
        if not any(base.values()):
            raise NotFound(
                f"{self.version} has price 0 for {name!r}, which may mean unknown; if it is free, create a card of 0"
            )
        cliffs = {above: f"_above_{thousands}k_tokens" for thousands, above in _CLIFFS.items()}
        tiers = {above: _prices(entry, suffix) for above, suffix in cliffs.items()}
        fee = entry.get("input_cost_per_request") or 0
        return price_card(
            NewPrice(
                model or upstream,
                f"{self.version}/{name}/{model or upstream}",
                base,
                valid_from=_BEGINNING,
                tiers=[(above, rates) for above, rates in sorted(tiers.items()) if rates],
                usd_per_request=Decimal(str(fee)),
                provider=seller,
                service_tiers=_by_tier(entry, "", base),
                service_tiers_above={above: _by_tier(entry, suffix, tiers[above]) for above, suffix in cliffs.items()},
            )
        )

    def _name_of(self, provider: str, upstream: str) -> str | None:
        """Return the name of the entry of a provider's model, not of another provider's model of the same name."""
        for seller in _TABLE_PROVIDERS.get(provider, (provider,)):
            if f"{seller}/{upstream}" in self._entries:
                return f"{seller}/{upstream}"
            entry = self._entries.get(upstream)
            if entry is not None and _is_sold_by(str(entry.get("litellm_provider") or ""), seller):
                return upstream
        return None


def _is_sold_by(told: str, seller: str) -> bool:
    """Return whether an entry's provider is the seller or a part of it, or missing."""
    if not told or told == seller:
        return True
    return seller in _FAMILIES and told.startswith((f"{seller}-", f"{seller}_"))


def _price_by_unit(entry: Entry) -> dict[Leaf, Decimal]:
    """Return a model's prices of other media, USD per million of a meter; empty if it is sold per token."""
    leaf, count, field = _BY_UNIT.get(str(entry.get("mode")), ("images", 1, ""))
    price = entry.get(field)
    if not isinstance(price, int | Decimal) or not price or entry.get("input_cost_per_token"):
        return {}
    return {leaf: _per_mtok(Decimal(price) / count)}


def _by_tier(entry: Entry, suffix: str, base: Mapping[Leaf, Decimal]) -> dict[str, dict[Leaf, Decimal]]:
    """Return the entry's prices by service tier, above the threshold of the suffix."""
    found = {name: _prices(entry, suffix + tier) for name, tier in _TIERS.items()}
    factors = entry.get(_MULTIPLIERS)
    factor = factors.get(_FAST) if isinstance(factors, dict) else None
    if isinstance(factor, int | Decimal):
        found[_FAST] = {leaf: price * Decimal(factor) for leaf, price in base.items()}
    return {name: prices for name, prices in found.items() if prices}


def _prices(entry: Entry, suffix: str) -> dict[Leaf, Decimal]:
    """Return USD per million tokens by meter, from the fields with a suffix.

    A wider field must neither hide a threshold nor replace a narrower field with another base price.
    """
    found: dict[Leaf, Decimal] = {}
    for leaf, fields in _FIELDS.items():
        own = next((entry[field] for field in fields if entry.get(field) is not None), None)
        alike = [field for field in fields if field == fields[0] or entry.get(field) == own]
        value = next((entry[field + suffix] for field in alike if entry.get(field + suffix) is not None), None)
        if isinstance(value, int | Decimal):
            found[leaf] = _per_mtok(Decimal(value))
    return found


def _per_mtok(usd_per_token: Decimal) -> Decimal:
    price = usd_per_token * _PER_MTOK
    rounded = price.quantize(_FINEST)
    # 1.5000000000000002e-07 is the float for 0.15; larger errors are refused by the card.
    return rounded if abs(price - rounded) <= _NOISE * abs(price) else price
