"""`tollkeeper cost allocate`: distributes shared costs over payers by the rules of a file."""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from analytics.cost.allocation import Allocation, allocate_costs
from analytics.cost.allocation_file import allocation_of
from analytics.cost.question import CostQuestion
from backends.control.rates import load_rates
from contracts.pricing.money import usd
from tollkeeper.cost_range import UTC_NAME, From, Month, TimeZone, To, asked_range
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table


def allocate_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the allocation in the file.")],
    file: Annotated[
        Path, typer.Option("--file", "-f", help="YAML file with saved allocations.", envvar="TOLLKEEPER_ALLOCATIONS")
    ],
    begin: From = "",
    end: To = "",
    month: Month = "",
    tz: TimeZone = UTC_NAME,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Distribute shared costs (idle GPUs, shadow traffic, unallocated, fixed, commitments) by a saved allocation."""
    now = datetime.now(UTC)
    with one_line_errors():
        rules = allocation_of(file, name)
        period, zone = asked_range(begin, end, month, tz, now)
        question = CostQuestion(period.start, period.end, (), None, zone, asked_at=now)
        with open_installation(data, store_url, os.environ) as opened:
            with opened.database.session() as session:
                rates = load_rates(session)
            answer = allocate_costs(opened.store, question, rules, rates)
    if as_json:
        print_json(allocation_as_json(name, answer))
    else:
        _print(answer)


def allocation_as_json(name: str, answer: Allocation) -> dict[str, object]:
    """Return an allocation with money as decimal text."""
    shared = [
        {"name": rule.name, "source": rule.source, "usd": _usd(amount), "left_usd": _usd(left)}
        for rule, amount, left in zip(answer.rules.shared, answer.shared_pico_usd, answer.left_pico_usd, strict=True)
    ]
    lines = [
        {
            answer.rules.by: line.name,
            "own_usd": _usd(line.direct.priced_pico_usd),
            "shared_usd": {
                rule.name: _usd(part) for rule, part in zip(answer.rules.shared, line.shares_pico_usd, strict=True)
            },
            "total_usd": _usd(line.total_pico_usd),
        }
        for line in answer.lines
    ]
    return {
        "allocation": name,
        "by": answer.rules.by,
        "own_usd": _usd(answer.direct_pico_usd),
        "shared": shared,
        "total_usd": _usd(answer.total_pico_usd),
        "lines": lines,
    }


def _print(answer: Allocation) -> None:
    names = [rule.name for rule in answer.rules.shared]
    rows = [
        _row(answer, line.name or "-", line.direct.priced_pico_usd, line.shares_pico_usd, line.total_pico_usd)
        for line in answer.lines
    ]
    if any(answer.left_pico_usd):
        rows.append(_row(answer, "(nobody)", 0, answer.left_pico_usd, sum(answer.left_pico_usd)))
    rows.append(_row(answer, "total", answer.direct_pico_usd, answer.shared_pico_usd, answer.total_pico_usd))
    print_table((answer.rules.by, "own USD", *names, "USD"), rows, lambda row, column: row[column], "")


def _row(answer: Allocation, label: str, own: int, shares: Sequence[int], total: int) -> Mapping[str, str]:
    parts = {rule.name: f"{usd(part):.6f}" for rule, part in zip(answer.rules.shared, shares, strict=True)}
    return {answer.rules.by: label, "own USD": f"{usd(own):.6f}", **parts, "USD": f"{usd(total):.6f}"}


def _usd(amount: int) -> str:
    return format(usd(amount), "f")
