"""What a made bill is of: models and providers, lines before they are written, and the differences that they hold."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

MONTH: Final = "2026-03"
START: Final = datetime(2026, 3, 1, tzinfo=UTC)
DAYS: Final = 30
PICO: Final = 10**12
KINDS: Final = ("input_text", "cache_read_text", "cache_write_5m", "output_text")
WITHOUT_WRITES: Final = ("input_text", "cache_read_text", "output_text")
TIER_SHARE: Final = {"flex": 2, "batch": 2}  # these tiers cost one in so many
FAULTS: Final = (
    *("lost_usage", "retried", "flex", "batch", "cache_1h", "rounding", "late", "price"),
    *("foreign_key", "tax", "credit", "missing_day"),
)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model: as it is asked for here, as the target calls it, as it answers, as the bill names it; and its prices."""

    id: str
    upstream: str
    answered: str
    billed: str
    rates: dict[str, int]  # pico-USD per token


@dataclass(frozen=True, slots=True)
class ProviderPlan:
    """A provider: its models, kinds of tokens, targets with the keys in its bills, and whether bills state prices."""

    name: str
    kinds: tuple[str, ...]
    models: tuple[ModelPlan, ...]
    keys: dict[str, tuple[str, ...]]
    states_prices: bool


@dataclass(slots=True)
class Line:
    """A line of a bill before it is written."""

    day: int
    model: ModelPlan
    target: str
    tier: str
    kind: str
    tokens: int
    amount: int
    price: int
    is_rounded: bool = False
    keys: tuple[str, ...] = ()
    part: int = 0


@dataclass(slots=True)
class Written:
    """What came of a provider: lines of its bill, charges beside usage, and the differences that they hold."""

    lines: list[Line] = field(default_factory=list)
    charges: list[tuple[str, int, int]] = field(default_factory=list)  # tax or credit, day, pico-USD
    expected: dict[tuple[int, str, str, str, str], int] = field(default_factory=lambda: defaultdict(int))

    def expect(self, day: int, model: ModelPlan, target: str, kind: str, cause: str, amount: int) -> None:
        """Record a difference."""
        self.expected[day, model.id, target, kind, cause] += amount


def amount_text(pico: int, *, scale: int = 1) -> str:
    """Return pico-USD as a decimal number, exactly."""
    text = format(Decimal(pico).scaleb(-12) * scale, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def day_start(day: int) -> datetime:
    """Return the beginning of a day of the month, from 0 on."""
    return START + timedelta(day)


def keys_of(provider: ProviderPlan, line: Line) -> tuple[str, ...]:
    """Return the keys that a line names."""
    return line.keys or provider.keys[line.target]
