"""Matches a provider's bill with recorded usage, and names the cause of every difference.

Without I/O: it returns findings for bill lines and recorded usage. A month's findings sum exactly to the bill minus
recorded cost. A difference in tokens gets a cause only with evidence: a request with estimated usage, an attempt that
failed late, the same tokens at another service tier, kind of usage or day. The rest is `unknown`. A difference in money
for the same tokens is a difference in price, or rounding within the last decimal place of the bill.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from analytics.reconciliation.lines import CREDIT, FEE, ROUNDING, TAX, BillLine
from contracts.metering.usage import INPUT_LEAVES, LEAVES

Cause = Literal[
    "late",
    "lost_usage",
    "retried",
    "tier",
    "cache_rule",
    "price",
    "agreed_price",
    "rounding",
    "unpriced",
    "not_through_us",
    "missing_day",
    "fee",
    "tax",
    "credit",
    "unknown",
]
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)
_APART: Final[Mapping[str, Cause]] = {TAX: "tax", CREDIT: "credit", FEE: "fee", ROUNDING: "rounding"}
_LATE_DAYS: Final = 3
_INPUT: Final = frozenset(INPUT_LEAVES)
_MOST_TOKENS: Final = 2_000_000  # maximum of one request of unknown usage: the largest context window


class Bucket(NamedTuple):
    """A unit of comparison: a day (UTC), a model, and a target; the target is empty if keys are not distinguished."""

    day: str
    model: str
    target: str


class Cell(NamedTuple):
    """A part of a bucket: a service tier and a kind of usage."""

    tier: str
    kind: str


@dataclass(slots=True)
class RecordedCell:
    """Recorded usage of a cell. `by_rate`: tokens by the general card's pico-USD per token; `None`: unpriced.

    `recorded` is the recorded cost (pico-USD), `expected` the cost by the general card instead of a tenant's own.
    """

    tokens: int = 0
    recorded: int = 0
    expected: int = 0
    by_rate: dict[int | None, int] = field(default_factory=dict)

    def add(self, tokens: int, recorded: int, expected: int, rate: int | None) -> None:
        """Add usage at one rate."""
        self.tokens += tokens
        self.recorded += recorded
        self.expected += expected
        self.by_rate[rate] = self.by_rate.get(rate, 0) + tokens


@dataclass(slots=True)
class RecordedBucket:
    """Recorded usage of a bucket, and the evidence for differences.

    `uncertain` counts requests with estimated or unknown usage, `retried` the tokens of failed attempts that a provider
    may bill.
    """

    cells: dict[Cell, RecordedCell] = field(default_factory=dict)
    uncertain: int = 0
    retried: dict[str, int] = field(default_factory=dict)

    def cell(self, cell: Cell) -> RecordedCell:
        """Return a cell, which is created if it is new."""
        found = self.cells.get(cell)
        if found is None:
            found = self.cells[cell] = RecordedCell()
        return found


# The general card's pico-USD per token of a cell; `None` if no card prices it.
Rates: TypeAlias = Callable[[Bucket, Cell], int | None]
# The bucket of a bill line, and whether its key belongs to a target.
Place: TypeAlias = Callable[[BillLine], tuple[Bucket, bool]]


@dataclass(frozen=True, slots=True)
class Found:
    """One difference and its cause: positive if the provider bills more than recorded. `tokens` is in tokens."""

    bucket: Bucket
    cell: Cell
    cause: Cause
    amount: int  # pico-USD
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Matched:
    """A month's billed cost, recorded cost, and differences."""

    billed: int
    recorded: int
    found: tuple[Found, ...]
    lines: int
    buckets: int

    @property
    def difference(self) -> int:
        """Return the bill minus recorded cost, in pico-USD."""
        return self.billed - self.recorded

    def by_cause(self) -> dict[Cause, int]:
        """Return the sum of each cause, in pico-USD."""
        sums: dict[Cause, int] = {}
        for one in self.found:
            sums[one.cause] = sums.get(one.cause, 0) + one.amount
        return {cause: sums[cause] for cause in CAUSES if cause in sums}


@dataclass(slots=True)
class _BilledCell:
    tokens: int | None = None
    counted: int | None = None  # from a usage report, which has the same tokens as a cost report
    amount: int | None = None
    stated: int | None = 0  # cost at the lines' stated unit prices; None: a line states none
    step: int = 0

    def add(self, line: BillLine) -> None:
        if line.amount is None:
            self.counted = (self.counted or 0) + (line.tokens or 0)
            return
        if line.tokens is not None:
            self.tokens = (self.tokens or 0) + line.tokens
        self.amount = (self.amount or 0) + line.amount
        self.step += line.step
        if line.tokens is not None and line.unit_price is not None:
            if self.stated is not None:
                self.stated += line.tokens * line.unit_price
        else:
            self.stated = None

    @property
    def own_rate(self) -> Fraction | None:
        """Return the provider's price per token (pico-USD): as stated, else amount by tokens."""
        if not self.tokens or self.amount is None:
            return None
        return Fraction(self.amount if self.stated is None else self.stated, self.tokens)


class _Work:
    """State of one bucket's matching: billed and recorded usage, and tokens without a cause so far."""

    __slots__ = (
        *("billed", "bucket", "evidence_retried", "evidence_uncertain", "found", "left", "rates", "recorded"),
        *("inexact", "transferred"),
    )

    def __init__(self, bucket: Bucket, recorded: RecordedBucket, rates: Rates) -> None:
        self.bucket = bucket
        self.recorded = recorded
        self.rates = rates
        self.billed: dict[Cell, _BilledCell] = {}
        self.left: dict[Cell, int] = {}
        self.found: dict[tuple[Cell, Cause], tuple[int, int]] = {}
        self.transferred: dict[Cell, int] = {}  # cost of tokens that are in another cell in the ledger than in the bill
        self.inexact = 0  # number of amounts rounded to a whole pico-USD
        self.evidence_retried = dict(recorded.retried)
        self.evidence_uncertain = recorded.uncertain * _MOST_TOKENS

    def open(self) -> None:
        """Compute the difference in tokens of each cell. Tokens that a file lacks are inferred from its prices."""
        has_counts = any(billed.counted is not None for billed in self.billed.values())
        for cell, billed in self.billed.items():
            if has_counts:
                billed.tokens = billed.counted or 0
            if billed.tokens is None and billed.amount is not None:
                own = self.recorded.cells.get(cell)
                rate = self.rate(cell)
                if own is not None and billed.amount == own.expected:
                    billed.tokens = own.tokens
                elif rate and billed.amount % rate == 0:
                    billed.tokens = billed.amount // rate
                else:
                    billed.tokens = 0 if own is None else own.tokens
        for cell in {*self.billed, *self.recorded.cells}:
            if cell.kind not in LEAVES:
                continue
            given = self.billed.get(cell)
            own = self.recorded.cells.get(cell)
            difference = ((given.tokens or 0) if given else 0) - (own.tokens if own else 0)
            if difference:
                self.left[cell] = difference

    def rate(self, cell: Cell) -> Fraction | int | None:
        """Return the price of a token of a cell (pico-USD): by the card, else by the bill; `None` if unknown."""
        own = self.recorded.cells.get(cell)
        if own is not None and own.tokens:
            known = [(tokens, rate) for rate, tokens in own.by_rate.items() if rate is not None and tokens]
            if known:
                return max(known)[1]
        found = self.rates(self.bucket, cell)
        if found is not None:
            return found
        given = self.billed.get(cell)
        return None if given is None else given.own_rate

    def worth(self, cell: Cell) -> Fraction | int:
        """Return the price of a token of a cell (pico-USD); 0 if unknown."""
        return self.rate(cell) or 0

    def add(self, cell: Cell, cause: Cause, amount: Fraction | int, tokens: int = 0) -> None:
        """Add a difference to the findings."""
        known = self.found.get((cell, cause), (0, 0))
        self.found[cell, cause] = (known[0] + self.whole(amount), known[1] + tokens)

    def transfer(self, source: Cell, goal: Cell, amount: Fraction | int) -> None:
        """Move recorded cost from its cell in the ledger to the cell in the bill."""
        whole = self.whole(amount)
        self.transferred[source] = self.transferred.get(source, 0) - whole
        self.transferred[goal] = self.transferred.get(goal, 0) + whole

    def whole(self, amount: Fraction | int) -> int:
        """Round to a whole pico-USD, and count roundings."""
        found = round(amount)
        self.inexact += found != amount
        return found

    def take(self, cell: Cell, tokens: int) -> None:
        """Subtract tokens from those without a cause."""
        rest = self.left.get(cell, 0) - tokens
        if rest:
            self.left[cell] = rest
        else:
            self.left.pop(cell, None)

    @property
    def has_evidence(self) -> bool:
        """Return whether the bucket has evidence for tokens that were billed and not recorded."""
        return bool(self.recorded.uncertain or self.recorded.retried)


def match(lines: Iterable[BillLine], recorded: Mapping[Bucket, RecordedBucket], rates: Rates, place: Place) -> Matched:
    """Return the differences between bill lines and recorded usage, with their causes; amounts are pico-USD."""
    works: dict[Bucket, _Work] = {}
    found: list[Found] = []
    billed_days: set[str] = set()
    count, nothing = 0, RecordedBucket()
    for line in lines:
        count += 1
        amount, apart, (bucket, is_ours) = line.amount or 0, _APART.get(line.kind), place(line)
        if apart is not None or not is_ours:
            if amount or line.tokens:
                cause: Cause = apart or "not_through_us"
                found.append(Found(bucket, Cell(line.tier, line.kind), cause, amount, line.tokens or 0))
            continue
        billed_days.add(line.day)
        work = works.get(bucket)
        if work is None:
            work = works[bucket] = _Work(bucket, recorded.get(bucket) or nothing, rates)
        cell = Cell(line.tier, line.kind)
        known = work.billed.get(cell)
        if known is None:
            known = work.billed[cell] = _BilledCell()
        known.add(line)
    for bucket, own in recorded.items():
        if bucket not in works:
            works[bucket] = _Work(bucket, own, rates)
    for work in works.values():
        work.open()
    _match_moves(works.values())
    _match_late(works, billed_days)
    used = {(bucket.model, bucket.target) for bucket, own in recorded.items() if own.cells}
    for work in works.values():
        is_missing = work.bucket.day not in billed_days
        is_used = (work.bucket.model, work.bucket.target) in used
        _match_tokens(work, is_missing=is_missing, is_used=is_used)
        rest: Cause = "missing_day" if is_missing else "price" if is_used else "not_through_us"
        _match_money(work, rest)
        found.extend(
            Found(work.bucket, cell, cause, amount, tokens)
            for (cell, cause), (amount, tokens) in work.found.items()
            if amount or tokens
        )
    found.sort(key=lambda one: (one.bucket, one.cell, one.cause))
    total = sum(cell.recorded for own in recorded.values() for cell in own.cells.values())
    return Matched(total + sum(one.amount for one in found), total, tuple(found), count, len(works))


def _match_moves(works: Iterable[_Work]) -> None:
    """Find tokens billed at another service tier, or as another kind of input, than recorded."""
    for work in works:
        if len(work.left) < 2:
            continue
        for same_kind, same_tier in ((True, False), (False, True), (False, False)):
            for is_exact in (True, False):
                _move(work, same_kind=same_kind, same_tier=same_tier, is_exact=is_exact)


def _move(work: _Work, *, same_kind: bool, same_tier: bool, is_exact: bool) -> None:
    short = [cell for cell, tokens in work.left.items() if tokens < 0]
    over = [cell for cell, tokens in work.left.items() if tokens > 0]
    for source in short:
        for goal in over:
            missing, more = -work.left.get(source, 0), work.left.get(goal, 0)
            if missing <= 0 or more <= 0:
                continue
            if (source.kind == goal.kind) != same_kind or (source.tier == goal.tier) != same_tier:
                continue
            if source.kind != goal.kind and not {source.kind, goal.kind} <= _INPUT:
                continue
            if missing != more and (is_exact or not _may_be_part(work, source, goal)):
                continue
            tokens = min(missing, more)
            _moved(work, source, goal, tokens)
            work.take(source, -tokens)
            work.take(goal, tokens)


def _may_be_part(work: _Work, source: Cell, goal: Cell) -> bool:
    """Return whether unequal numbers may be the same tokens: no other explanation, or a whole cell moved."""
    return not work.has_evidence or (source not in work.billed and goal not in work.recorded.cells)


def _moved(work: _Work, source: Cell, goal: Cell, tokens: int) -> None:
    """Add the findings for tokens recorded as `source` and billed as `goal`: for the kind first, then for the tier."""
    between = Cell(source.tier, goal.kind)
    start, end = work.worth(source), work.worth(goal)
    middle = start if source.kind == goal.kind else (work.worth(between) if source.tier != goal.tier else end)
    work.transfer(source, goal, tokens * start)
    if source.kind != goal.kind:
        work.add(goal, "cache_rule", tokens * (middle - start), tokens)
    if source.tier != goal.tier:
        work.add(goal, "tier", tokens * (end - middle), tokens)


def _match_late(works: Mapping[Bucket, _Work], billed_days: set[str]) -> None:
    """Find tokens billed on a later day than recorded, most certain matches first."""
    ordered = [works[bucket] for bucket in sorted(works)]
    for find in (_late_exactly, _late_missing, _late_hidden):
        for after in range(1, _LATE_DAYS + 1):
            for work in ordered:
                later = works.get(work.bucket._replace(day=_day_after(work.bucket.day, after)))
                if later is None or not later.left:
                    continue
                # For a day without bill lines, only equal numbers count as late.
                if find is _late_exactly or work.bucket.day in billed_days:
                    find(work, later)


def _late_exactly(work: _Work, later: _Work) -> None:
    """Match equal numbers of tokens, missing on one day and extra on a later one."""
    for goal, more in list(later.left.items()):
        sources = [cell for cell, tokens in work.left.items() if tokens == -more and _is_akin(cell, goal)]
        sources.sort(key=lambda cell: cell != goal)
        if more > 0 and sources and not (later.has_evidence and sources[0] != goal):
            _late(work, later, sources[0], goal, more)


def _late_missing(work: _Work, later: _Work) -> None:
    """Match a part of the tokens missing on one day on a later day, or more if the first day has evidence."""
    for goal, more in list(later.left.items()):
        missing = -work.left.get(goal, 0)
        if more <= 0 or missing <= 0 or (later.has_evidence and more < missing):
            continue
        is_hidden = work.has_evidence and not later.has_evidence
        _late(work, later, goal, goal, more if is_hidden else min(missing, more))


def _late_hidden(work: _Work, later: _Work) -> None:
    """Match extra tokens of a later day without evidence to a day whose evidence offsets the missing ones."""
    if not work.has_evidence or later.has_evidence:
        return
    for goal, more in list(later.left.items()):
        if more > 0 and goal in work.recorded.cells:
            _late(work, later, goal, goal, more)


def _is_akin(source: Cell, goal: Cell) -> bool:
    return source.kind == goal.kind or {source.kind, goal.kind} <= _INPUT


def _late(work: _Work, later: _Work, source: Cell, goal: Cell, tokens: int) -> None:
    worth = work.worth(source)
    work.add(source, "late", -tokens * worth, -tokens)
    work.take(source, -tokens)
    later.add(goal, "late", tokens * worth, tokens)
    later.take(goal, tokens)
    if source != goal:
        between = Cell(source.tier, goal.kind)
        end = later.worth(goal)
        middle = worth if source.kind == goal.kind else (later.worth(between) if source.tier != goal.tier else end)
        if source.kind != goal.kind:
            later.add(goal, "cache_rule", tokens * (middle - worth), tokens)
        if source.tier != goal.tier:
            later.add(goal, "tier", tokens * (end - middle), tokens)


def _match_tokens(work: _Work, *, is_missing: bool, is_used: bool) -> None:
    """Assign causes to the remaining differences in tokens."""
    for cell, tokens in sorted(work.left.items()):
        worth, left = work.worth(cell), tokens
        if is_missing and left < 0:
            work.add(cell, "missing_day", left * worth, left)
            continue
        if left > 0:
            again = _retried(work, cell.kind, left)
            if again:
                work.add(cell, "retried", again * worth, again)
                left -= again
            if not is_used and left:
                work.add(cell, "not_through_us", left * worth, left)
                left = 0
        if left and work.evidence_uncertain >= abs(left):
            work.add(cell, "lost_usage", left * worth, left)
            work.evidence_uncertain -= abs(left)
            left = 0
        if left:
            work.add(cell, "unknown", left * worth, left)
    work.left.clear()


def _retried(work: _Work, kind: str, tokens: int) -> int:
    """Return how many of the tokens failed attempts account for; other kinds of input count if equal in number."""
    known = work.evidence_retried
    akin = kind if known.get(kind) else next((one for one in known if one in _INPUT and known[one] == tokens), "")
    if akin != kind and kind not in _INPUT:
        return 0
    again = min(tokens, known.get(akin, 0))
    if again:
        known[akin] -= again
    return again


def _match_money(work: _Work, cause: Cause) -> None:
    """Compare cost by cell after tokens have causes: differences are of price (`cause`) or rounding."""
    by_kind: dict[str, list[Cell]] = defaultdict(list)
    for cell in {*work.billed, *work.recorded.cells}:
        by_kind[cell.kind].append(cell)
    for kind, cells in sorted(by_kind.items()):
        for group in [cells] if _has_amounts_of_other_cells(work, cells) else [[cell] for cell in cells]:
            _match_money_of(work, kind, group, cause)


def _has_amounts_of_other_cells(work: _Work, cells: Sequence[Cell]) -> bool:
    """Return whether tokens and cost are in different cells, as with separate usage and cost reports."""
    has_tokens_alone = any(work.billed[cell].amount is None for cell in cells if cell in work.billed)
    has_amount = any(work.billed[cell].amount is not None for cell in cells if cell in work.billed)
    return has_tokens_alone and has_amount


def _match_money_of(work: _Work, kind: str, cells: Sequence[Cell], cause: Cause) -> None:
    billed = [work.billed[cell] for cell in cells if cell in work.billed]
    if billed and all(each.amount is None for each in billed):
        return  # a usage report: only tokens are compared
    own = [work.recorded.cells[cell] for cell in cells if cell in work.recorded.cells]
    main = max(cells, key=lambda cell: (cell in work.billed, cell.tier == "", cell))
    agreed = sum(each.expected - each.recorded for each in own)
    if agreed:
        work.add(main, "agreed_price", agreed)
    amount = sum(each.amount or 0 for each in billed)
    explained = sum(each.recorded for each in own) + sum(work.transferred.get(cell, 0) for cell in cells)
    explained += sum(value[0] for (cell, _), value in work.found.items() if cell in cells)
    rest = amount - explained
    unpriced = sum(each.by_rate.get(None, 0) for each in own)
    if rest and unpriced:
        part = work.whole(min(unpriced * work.worth(main), rest))
        work.add(main, "unpriced", part, unpriced)
        rest -= part
    if not billed or kind not in LEAVES:
        if rest:
            work.add(main, cause, rest)
        return
    step = max(sum(each.step for each in billed), work.inexact + 1)
    stated = [each.stated for each in billed]
    # Also if the rest is 0: a change of price and rounding may cancel out.
    rounding = amount - sum(each or 0 for each in stated)
    if any(each is None for each in stated) or abs(rounding) >= step:
        rounding = rest if abs(rest) < step else 0  # the bill does not state its prices, or states others than it bills
    if rounding:
        work.add(main, "rounding", rounding)
    if rest != rounding:
        work.add(main, cause, rest - rounding)


def _day_after(day: str, count: int) -> str:
    return (date.fromisoformat(day) + timedelta(count)).isoformat()
