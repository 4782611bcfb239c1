"""Money in tables is the viewer's currency, as in figures; exports and everything that is summed stay USD."""

from decimal import Decimal

import pytest

from analytics.series import Point
from dashboard import charts
from dashboard.formats import Formats
from dashboard.money_column import Money, in_currency
from dashboard.table import Table

EURO = Formats("de_DE", currency="EUR", usd_rate=Decimal("0.5"))
COLUMNS = {"Cost": Money(4, "Of what has a price"), "Change": Money(2, is_signed=True), "Requests": None}


@pytest.mark.parametrize(
    ("formats", "cost", "change_title", "written"),
    [
        (Formats(), [3.0, None], "Change", "$%.4f"),
        (EURO, [1.5, None], "Change", "%.4f\u00a0€"),
        (Formats("de_CH", currency="CHF"), [3.0, None], "Change CHF", "CHF\u00a0%.4f"),
    ],
)
def test_columns_of_money_are_in_the_viewers_currency(
    formats: Formats, cost: list[float | None], change_title: str, written: str
) -> None:
    table = Table({"Cost": [3.0, None], "Change": [-1.0, 2.0], "Requests": [1, 2]})
    shown, configured = in_currency(table, COLUMNS, formats)
    assert shown["Cost"] == cost and shown["Requests"] == [1, 2]
    assert configured["Cost"]["type_config"]["format"] == written
    assert (configured["Change"]["label"] or "Change") == change_title
    assert table["Cost"] == [3.0, None], "what is exported"


@pytest.mark.parametrize(
    ("currency", "amount", "title", "written"),
    [
        ("USD", -0.5, "Cost", "dollar"),
        ("EUR", -0.5, "Cost", "euro"),
        ("CHF", -0.5, "Cost CHF", "%.4f"),
        ("USD", 0.0, "Cost", "$%.4f"),
    ],
)
def test_a_minus_stands_before_the_currency(currency: str, amount: float, title: str, written: str) -> None:
    _, configured = in_currency(Table({"Cost": [3.0, amount]}), COLUMNS, Formats(currency=currency))
    label, kind = configured["Cost"].get("label") or "Cost", configured["Cost"]["type_config"]
    assert label == title and kind["format"] == written
    assert kind["step"] == (0.0001 if written in ("dollar", "euro") else None)


def test_signed_amounts_are_rounded_not_cut() -> None:
    amounts = [0.03743695, -0.03743695, None]
    shown, configured = in_currency(Table({"Net": amounts}), {"Net": Money(6)}, Formats())
    assert configured["Net"]["type_config"]["step"] == 1e-6, "the browser cuts what is beyond a step"
    assert shown["Net"] == [0.037437, -0.037437, None]


def test_a_chart_of_cost_says_its_currency() -> None:
    assert charts.cost_in(EURO).title == "Cost in EUR"
    assert charts.cost_in(EURO).value(Point(cost_usd=Decimal(3))) == 1.5
    assert charts.cost_in(EURO).text(Point(cost_usd=Decimal(3))) == "1,50\u00a0€"
