"""The state of a request's price: one of six, the same in metrics (here) and in the store's SQL.

The SQL is the column `price_state` of `requests` (migration 0035); a test compares both on random requests.
"""

from typing import Final, Literal

from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.prices import INPUT_ONLY_OPERATIONS
from contracts.recording.records import RequestRecord

PriceState = Literal["rejected", "failed", "priced", "partly_unpriced", "unknown_usage", "unpriced"]

# States with usage, but without an amount for all of it.
WITHOUT_PRICE: Final[tuple[PriceState, ...]] = ("unpriced", "unknown_usage")


def price_state(record: RequestRecord) -> PriceState:
    """Return the state of a request's price.

    `failed`: it failed and costs nothing. `unknown_usage`: its usage is unknown. `unpriced`: its usage is known, but no
    price card is valid. `partly_unpriced`: a kind of token has no price, the rest is billed.
    """
    if record.outcome == "rejected":
        return "rejected"
    if record.cost_basis == "free":
        return "failed"
    if record.cost_pico_usd is not None:
        return "partly_unpriced" if record.unpriced_leaves else "priced"
    if record.cost_basis == "unknown_usage":
        return "unknown_usage"
    usage = record.usage
    if usage.has_units:
        return "unpriced"
    if record.outcome == "error" and _is_empty(usage):
        return "failed"
    has_output = usage.has_output or record.operation in INPUT_ONLY_OPERATIONS
    return "unpriced" if usage.has_input and has_output else "unknown_usage"


def _is_empty(usage: Usage) -> bool:
    return usage is UNKNOWN_USAGE or not (usage.has_input or usage.has_output)
