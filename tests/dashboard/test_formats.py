"""Numbers as people read them."""

from decimal import Decimal

import pytest

from dashboard import formats


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "—"),
        (0, "0"),
        (999_999, "999,999"),
        (1_000_000, "1.00 M"),
        (1_234_567, "1.23 M"),
        (4_560_000_000, "4.56 B"),
    ],
)
def test_counts(number: int | None, text: str) -> None:
    assert formats.count(number) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "—"),
        (Decimal(0), "$0.00"),
        (Decimal("0.000270000000"), "$0.00027"),
        (Decimal("0.000000123456"), "$0.000000123"),
        (Decimal("0.009999"), "$0.01"),
        (Decimal("0.01"), "$0.0100"),
        (Decimal("0.123456"), "$0.1235"),
        (Decimal("1.005"), "$1.00"),
        (Decimal("1234.5"), "$1,234.50"),
        (Decimal("1234567"), "$1.23 M"),
    ],
)
def test_money_shows_what_matters_of_its_size(amount: Decimal | None, text: str) -> None:
    assert formats.money(amount) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (None, "—"),
        (0, "0 µs"),
        (640_000, "640 µs"),
        (12_340_000, "12.3 ms"),
        (345_600_000, "346 ms"),
        (1_240_000_000, "1.24 s"),
        (210e9, "3.5 min"),
    ],
)
def test_durations(nanoseconds: float | None, text: str) -> None:
    assert formats.duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "—"), (0.0, "0 %"), (0.0004, "< 0.1 %"), (0.001, "0.1 %"), (0.5, "50.0 %"), (1.0, "100.0 %")],
)
def test_percentages_never_hide_a_small_share(share: float | None, text: str) -> None:
    assert formats.percent(share) == text
