"""Money as integers: one pico-USD is 10^-12 USD. Stored as Decimal(18, 12), in code `int` pico-USD.

A price of 1 USD per million tokens is 1,000,000 pico-USD per token; real prices such as 18.75 nano-USD per token need
this resolution, and no price needs a finer one.
"""

from decimal import Context, Decimal, Inexact
from typing import Final

PICO_USD_PER_USD = 10**12
PICO_USD_PER_TOKEN_AT_ONE_USD_PER_MTOK = 10**6
# The maximum of Decimal(18, 12): six digits before the point.
MAX_PICO_USD = 10**18 - 1

_MAX_DIGITS_BEFORE_POINT: Final = 18  # far beyond any amount of money; "1e999999" would take seconds to write out
_EXACT: Final = Context(prec=60, traps=[Inexact])  # raises an error where the caller's own context might round


def pico_usd(amount_usd: Decimal) -> int:
    """Convert USD to integer pico-USD.

    Raises ValueError if the amount is not finite, finer than a pico-USD, or 10^18 USD and more.
    """
    whole = _whole_multiple(amount_usd, PICO_USD_PER_USD)
    if whole is None:
        raise ValueError(f"{amount_usd} USD is finer than a pico-USD (12 decimal places)")
    return whole


def usd(amount_pico_usd: int) -> Decimal:
    """Convert integer pico-USD to USD, exactly, with twelve decimal places."""
    return _EXACT.scaleb(Decimal(amount_pico_usd), -12)


def pico_usd_per_token(usd_per_mtok: Decimal) -> int:
    """Convert a price in USD per million tokens to pico-USD per token, exactly.

    Raises ValueError if the price is negative, not finite, or finer than 10^-6 USD per million tokens. Example:
    Decimal("0.15") USD per million tokens -> 150_000 pico-USD per token.
    """
    if not usd_per_mtok.is_finite() or usd_per_mtok < 0:
        raise ValueError(f"a price must be a finite number of USD >= 0, not {usd_per_mtok}")
    whole = _whole_multiple(usd_per_mtok, PICO_USD_PER_TOKEN_AT_ONE_USD_PER_MTOK)
    if whole is None:
        raise ValueError(f"{usd_per_mtok} USD per million tokens is finer than 0.000001")
    return whole


def _whole_multiple(amount: Decimal, units: int) -> int | None:
    """Multiply exactly; `None` if the product is not an integer. Raises ValueError if the amount is invalid."""
    if not amount.is_finite():
        raise ValueError(f"an amount must be a finite number of USD, not {amount}")
    if amount and amount.adjusted() >= _MAX_DIGITS_BEFORE_POINT:
        raise ValueError(f"an amount must be below 10^{_MAX_DIGITS_BEFORE_POINT} USD, not {amount}")
    try:
        product = _EXACT.multiply(amount, units)
    except Inexact:  # more digits than any amount has: the last are far behind the point
        return None
    whole = int(product)
    return whole if whole == product else None
