"""Usage of a user's own API keys, by day and model."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient
from contracts.pricing.money import usd


@dataclass(frozen=True, slots=True)
class OwnDay:
    """One model on one day (UTC). `unpriced` requests are not in `cost_usd`; `refused` counts failed ones too."""

    day: date
    model: str
    requests: int
    refused: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal
    unpriced: int


def own_usage(
    store: StoreClient, tenant: str, team: str | None, keys: tuple[str, ...], start: datetime, end: datetime
) -> tuple[OwnDay, ...]:
    """Return the usage of a tenant's (or team's) keys in a range, oldest first. Raises StoreUnavailable."""
    parameters = {
        "tenant": tenant,
        "team": team,
        "keys": list(keys),
        "start": int(start.timestamp()),
        "end": int(end.timestamp()),
    }
    return tuple(
        OwnDay(
            day=datetime.fromtimestamp(number_of(row["day_start"]), UTC).date(),
            model=text_of(row["model_label"]),
            requests=number_of(row["request_count"]),
            refused=number_of(row["refused_count"]),
            input_tokens=number_of(row["input_sum"]),
            output_tokens=number_of(row["output_sum"]),
            cost_usd=usd(number_of(row["cost_pico_sum"])),
            unpriced=number_of(row["unpriced_count"]),
        )
        for row in store.query(query("own_usage"), parameters)
    )
