"""Saved allocations: cost by payer, including shares of shared costs, by the rules in a file."""

from typing import Any, Final

from analytics.cost.allocation import Allocation
from analytics.cost.allocation_file import allocate_saved, read_allocations, saved_allocation
from analytics.cost.drill import CostRange
from contracts.errors import TollkeeperError
from contracts.pricing.money import usd
from dashboard.controls import select
from dashboard.money_column import Money
from dashboard.panels import Figure, note, show_figures, show_table
from dashboard.settings import DashboardSettings
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.views.costs_words import label_of
from dashboard.visit import Visit

KEEP_SECONDS: Final = 300
_MOST_ROWS: Final = 1_000
_NOBODY: Final = "(nobody)"


def draw_allocations(visit: Visit, within: CostRange) -> None:
    """Draw one saved allocation: own cost, each shared cost, and their sum, by payer."""
    file = DashboardSettings().allocations
    if file is None:
        note("No allocations are saved. Write rules into a YAML file and name it in TOLLKEEPER_ALLOCATIONS; see "
             "docs/costs.md, Divide shared costs.")  # fmt: skip
        return
    try:
        names = tuple(sorted(read_allocations(file)))
    except TollkeeperError as error:
        note(f"The saved allocations cannot be read: {error.message}.")
        return
    if not names:
        note(f"{file.name} has no allocations.")
        return
    name = select("allocation", "Allocation", names, default=names[0])
    saved = visit.read_control(saved_allocation, file, name)
    answer = visit.read_slow(allocate_saved, saved, within, keep_seconds=KEEP_SECONDS)
    if isinstance(answer, Pending):
        note("Shared costs are being allocated from single requests; this takes a few seconds.")
        return
    _figures(visit, answer)
    columns: dict[str, Any] = {rule.name: Money(4, _source(rule.source, rule.by)) for rule in answer.rules.shared}
    show_table(
        f"By {answer.rules.by.removeprefix('tag:')}",
        allocation_table(answer),
        key=f"allocation_{name}",
        columns={
            "Direct": Money(4, "Cost of requests that belong to the payer"),
            **columns,
            "Total": Money(4, "Direct and shared costs"),
        },
        formats=visit.formats,
        help="Most expensive first. The rows sum to the total. Informational only: invoices use "
        "recorded usage, not these allocations.",
        data=lambda: allocation_export(answer),
        empty="No requests in this range.",
    )


def _source(source: str, by: object) -> str:
    return f"{source.replace('_', ' ')}, divided by {by if isinstance(by, str) else 'weights'}"


def _figures(visit: Visit, answer: Allocation) -> None:
    money = visit.formats.money
    figures = [
        Figure(
            "Direct cost",
            money(usd(answer.direct_pico_usd)),
            "before shared costs",
            "Cost of requests that belong to a payer.",
        )
    ]
    for rule, amount, left in zip(answer.rules.shared, answer.shared_pico_usd, answer.left_pico_usd, strict=True):
        below = f"{money(usd(left))} unallocated" if left else "all divided"
        figures.append(Figure(rule.name, money(usd(amount)), below, _source(rule.source, rule.by)))
    total = money(usd(answer.total_pico_usd))
    show_figures([*figures, Figure("Total", total, "direct and shared costs", "The sum of the table's rows.")])


def allocation_table(answer: Allocation) -> Table:
    """Return the table of payers; the last row is the unallocated cost."""
    name = answer.rules.by.removeprefix("tag:")
    rules = [rule.name for rule in answer.rules.shared]
    rows = [
        _row(name, rules, label_of(line.name), line.direct.priced_pico_usd, line.shares_pico_usd)
        for line in answer.lines[:_MOST_ROWS]
    ]
    if any(answer.left_pico_usd):
        rows.append(_row(name, rules, _NOBODY, 0, answer.left_pico_usd))
    return Table(rows)


def _row(name: str, rules: list[str], label: str, own: int, shares: tuple[int, ...]) -> dict[str, Any]:
    parts = {rule: float(usd(share)) for rule, share in zip(rules, shares, strict=True)}
    return {name: label, "Direct": float(usd(own)), **parts, "Total": float(usd(own + sum(shares)))}


def allocation_export(answer: Allocation) -> Table:
    """Return all payers for export, with exact amounts."""
    lines = [(line.name, line.direct.priced_pico_usd, line.shares_pico_usd) for line in answer.lines]
    return Table(
        [
            {
                answer.rules.by: name,
                "own_usd": usd(own),
                **{rule.name: usd(share) for rule, share in zip(answer.rules.shared, shares, strict=True)},
                "total_usd": usd(own + sum(shares)),
            }
            for name, own, shares in [*lines, (_NOBODY, 0, answer.left_pico_usd)]
        ]
    )
