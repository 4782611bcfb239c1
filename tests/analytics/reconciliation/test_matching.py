"""Every difference between a bill and recorded usage has its cause, and all causes sum to it exactly."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.reconciliation.lines import CREDIT, FEE, ROUNDING, TAX, BillLine
from analytics.reconciliation.matching import Bucket, Cell, Matched, RecordedBucket, match

CENT = 10**10
INPUT, CACHED, WRITE, HOUR, OUTPUT = "input_text", "cache_read_text", "cache_write_5m", "cache_write_1h", "output_text"
RATES = {INPUT: 1_000_000, CACHED: 100_000, WRITE: 1_250_000, HOUR: 2_000_000, OUTPUT: 4_000_000}
DAY, NEXT = "2026-03-04", "2026-03-05"


def rate_of(bucket: Bucket, cell: Cell) -> int | None:
    """The general card: flex costs half, other tiers are not on it."""
    rate = RATES.get(cell.kind)
    if rate is None or cell.tier not in ("", "flex"):
        return None
    return rate // 2 if cell.tier else rate


def place(line: BillLine) -> tuple[Bucket, bool]:
    return Bucket(line.day, line.model, ""), not line.keys or line.keys[0] != "stranger"


def bucket(day: str = DAY) -> Bucket:
    return Bucket(day, "gpt", "")


def recorded(uncertain: int = 0, retried: dict[str, int] | None = None, **tokens: int) -> RecordedBucket:
    found = RecordedBucket(uncertain=uncertain, retried=retried or {})
    for kind, count in tokens.items():
        found.cell(Cell("", kind)).add(count, count * RATES[kind], count * RATES[kind], RATES[kind])
    return found


def line(
    kind: str, tokens: int | None, amount: int | None = None, *, day: str = DAY, tier: str = "", **more: Any
) -> BillLine:
    rate = RATES.get(kind, 0) // (2 if tier else 1)
    return BillLine(
        1,
        day,
        "gpt",
        more.pop("keys", ()),
        tier,
        kind,
        tokens,
        (tokens or 0) * rate if amount is None else amount,
        **more,
    )


def causes(lines: list[BillLine], books: dict[Bucket, RecordedBucket]) -> dict[tuple[str, str, str], int]:
    found = match(lines, books, rate_of, place)
    assert found.difference == sum(one.amount for one in found.found) == found.billed - found.recorded
    assert found.billed == sum(each.amount or 0 for each in lines)
    return {(one.bucket.day, one.cell.kind, one.cause): one.amount for one in found.found}


def test_a_bill_of_what_was_recorded_has_no_difference() -> None:
    assert causes([line(INPUT, 900), line(OUTPUT, 100)], {bucket(): recorded(input_text=900, output_text=100)}) == {}


@pytest.mark.parametrize(
    ("lines", "books", "expected"),
    [
        ([line(INPUT, 950)], recorded(input_text=900, uncertain=1), {"lost_usage": 50 * RATES[INPUT]}),
        ([line(INPUT, 850)], recorded(input_text=900, uncertain=1), {"lost_usage": -50 * RATES[INPUT]}),
        ([line(INPUT, 950)], recorded(input_text=900, retried={INPUT: 50}), {"retried": 50 * RATES[INPUT]}),
        (
            [line(INPUT, 960)],
            recorded(input_text=900, retried={INPUT: 50}, uncertain=1),
            {"retried": 50 * RATES[INPUT], "lost_usage": 10 * RATES[INPUT]},
        ),
        (
            [line(INPUT, 950)],
            recorded(input_text=900, retried={INPUT: 49}),
            {"retried": 49_000_000, "unknown": 1_000_000},
        ),
        ([line(INPUT, 950)], recorded(input_text=900), {"unknown": 50 * RATES[INPUT]}),
        ([line(INPUT, 850)], recorded(input_text=900), {"unknown": -50 * RATES[INPUT]}),
        ([line(INPUT, 900, tier="flex")], recorded(input_text=900), {"tier": -450 * RATES[INPUT]}),
        ([line(HOUR, 900)], recorded(cache_write_5m=900), {"cache_rule": 900 * (RATES[HOUR] - RATES[WRITE])}),
        ([line(INPUT, 900)], recorded(cache_read_text=900), {"cache_rule": 900 * (RATES[INPUT] - RATES[CACHED])}),
        (
            [line(HOUR, 900, tier="flex")],
            recorded(cache_write_5m=900),
            {"cache_rule": 900 * (RATES[HOUR] - RATES[WRITE]), "tier": -450 * RATES[HOUR]},
        ),
        ([line(INPUT, 900, 1_800 * RATES[INPUT], step=1)], recorded(input_text=900), {"price": 900 * RATES[INPUT]}),
        ([line(INPUT, 900, 900_000_001, step=1)], recorded(input_text=900), {"price": 1}),
        ([line(INPUT, 900, CENT, step=CENT)], recorded(input_text=900), {"rounding": CENT - 900 * RATES[INPUT]}),
        ([line(INPUT, 900, CENT + 900_000_000, step=CENT)], recorded(input_text=900), {"price": CENT}),
        (
            [line(INPUT, 900, CENT, step=CENT, unit_price=2 * RATES[INPUT])],
            recorded(input_text=900),
            {"price": 900 * RATES[INPUT], "rounding": CENT - 1_800 * RATES[INPUT]},
        ),
        (
            [line(INPUT, 900, 900_000_000, step=CENT, unit_price=2 * RATES[INPUT])],
            recorded(input_text=900),
            {"price": 900 * RATES[INPUT], "rounding": -900 * RATES[INPUT]},
        ),
        ([line(TAX, None, 5)], recorded(), {"tax": 5}),
        ([line(CREDIT, None, -5)], recorded(), {"credit": -5}),
        ([line(FEE, None, 5)], recorded(), {"fee": 5}),
        ([line(ROUNDING, None, -1)], recorded(), {"rounding": -1}),
        ([line(INPUT, 7, keys=("stranger",))], recorded(), {"not_through_us": 7 * RATES[INPUT]}),
        ([line(INPUT, 7)], recorded(), {"not_through_us": 7 * RATES[INPUT]}),
    ],
)
def test_a_difference_has_its_cause(lines: list[BillLine], books: RecordedBucket, expected: dict[str, int]) -> None:
    found = causes(lines, {bucket(): books} if books.cells else {})
    assert {cause: amount for (_, _, cause), amount in found.items()} == expected


def test_tokens_of_a_later_day_are_late_and_those_of_a_day_without_lines_are_missing() -> None:
    books = {bucket(): recorded(input_text=900), bucket(NEXT): recorded(input_text=500)}
    late = causes([line(INPUT, 850), line(INPUT, 550, day=NEXT)], books)
    assert late == {(DAY, INPUT, "late"): -50 * RATES[INPUT], (NEXT, INPUT, "late"): 50 * RATES[INPUT]}
    assert causes([line(INPUT, 500, day=NEXT)], books) == {(DAY, INPUT, "missing_day"): -900 * RATES[INPUT]}
    hidden = {bucket(): recorded(input_text=900, uncertain=1), bucket(NEXT): recorded(input_text=500)}
    assert causes([line(INPUT, 870), line(INPUT, 550, day=NEXT)], hidden) == {
        (DAY, INPUT, "late"): -50 * RATES[INPUT],
        (DAY, INPUT, "lost_usage"): 20 * RATES[INPUT],
        (NEXT, INPUT, "late"): 50 * RATES[INPUT],
    }


def test_late_tokens_at_another_tier_have_both_causes() -> None:
    books = {bucket(): recorded(input_text=900), bucket(NEXT): recorded(input_text=500)}
    bill = [line(INPUT, 850, tier="flex"), line(INPUT, 500, day=NEXT), line(INPUT, 50, day=NEXT, tier="flex")]
    assert causes(bill, books) == {
        (DAY, INPUT, "tier"): -425 * RATES[INPUT],
        (DAY, INPUT, "late"): -50 * RATES[INPUT],
        (NEXT, INPUT, "late"): 50 * RATES[INPUT],
        (NEXT, INPUT, "tier"): -25 * RATES[INPUT],
    }


def test_requests_without_a_price_and_tenants_own_prices_are_causes_of_their_own() -> None:
    books = RecordedBucket()
    books.cell(Cell("", INPUT)).add(900, 0, 0, None)
    assert causes([line(INPUT, 900)], {bucket(): books}) == {(DAY, INPUT, "unpriced"): 900 * RATES[INPUT]}
    books = RecordedBucket()
    books.cell(Cell("", INPUT)).add(900, 1_200 * RATES[INPUT], 900 * RATES[INPUT], RATES[INPUT])
    assert causes([line(INPUT, 900)], {bucket(): books}) == {(DAY, INPUT, "agreed_price"): -300 * RATES[INPUT]}


def test_a_usage_report_and_a_cost_report_are_about_the_same_tokens() -> None:
    usage = BillLine(1, DAY, "gpt", (), "", INPUT, 950, None)
    cost = BillLine(1, DAY, "gpt", (), "", INPUT, None, 950 * RATES[INPUT])
    books = {bucket(): recorded(input_text=900, uncertain=1)}
    assert causes([usage, cost], books) == {(DAY, INPUT, "lost_usage"): 50 * RATES[INPUT]}
    alone = match([usage], books, rate_of, place)
    assert [(one.cause, one.amount, one.tokens) for one in alone.found] == [("lost_usage", 50 * RATES[INPUT], 50)]
    assert {cause: sum_ for (_, _, cause), sum_ in causes([cost], books).items()} == {"lost_usage": 50 * RATES[INPUT]}


kinds = st.sampled_from([INPUT, CACHED, WRITE, HOUR, OUTPUT])
days = st.sampled_from([DAY, NEXT, "2026-03-06", "2026-03-09"])
bill_lines = st.builds(
    lambda day, tier, kind, tokens, amount, price, step, keys: BillLine(
        1, day, "gpt", keys, tier, kind, tokens if kind in RATES else None, amount, price, step
    ),
    days,
    st.sampled_from(["", "flex", "priority"]),
    kinds | st.sampled_from([TAX, CREDIT, FEE]),
    st.none() | st.integers(0, 10_000),
    st.integers(-(10**12), 10**12),
    st.none() | st.integers(0, 10**7),
    st.sampled_from([1, CENT]),
    st.sampled_from([(), ("ours",), ("stranger",)]),
)


@given(
    st.lists(bill_lines, max_size=12),
    st.dictionaries(days, st.lists(st.tuples(kinds, st.integers(0, 9_000), st.integers(0, 10**7)), max_size=5)),
    st.integers(0, 1),
    st.dictionaries(kinds, st.integers(1, 5_000), max_size=2),
)
def test_causes_always_sum_to_the_difference_exactly(
    lines: list[BillLine],
    used: dict[str, list[tuple[str, int, int]]],
    uncertain: int,
    retried: dict[str, int],
) -> None:
    books: dict[Bucket, RecordedBucket] = {}
    for day, cells in used.items():
        books[bucket(day)] = RecordedBucket(uncertain=uncertain, retried=dict(retried))
        for kind, tokens, rate in cells:
            books[bucket(day)].cell(Cell("", kind)).add(tokens, tokens * rate, tokens * rate, rate)
    found: Matched = match(lines, books, rate_of, place)
    assert found.recorded == sum(tokens * rate for cells in used.values() for _, tokens, rate in cells)
    assert found.billed == sum(each.amount or 0 for each in lines)
    assert found.difference == sum(one.amount for one in found.found)
