"""Distributes shared costs among the payers of a cost report by rules; the parts sum exactly to the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Annotated, Final, Literal

import msgspec

from algorithms.gpu_time.attribution import split_exactly
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.cost.sums import CostSum, total_of
from analytics.gpu.books import gpu_books
from analytics.gpu.cost import IDLE_LINES, gpu_cost
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.pricing.money import pico_usd
from contracts.pricing.rates import RateBook
from contracts.serving.rollouts import PLATFORM_TENANT

# `unallocated`: requests without a name at the level. `platform`: the installation's own requests, such as shadow
# copies. `idle_gpu`: unused GPU time at its rates. `fixed`: an amount in the rule. `commitment`: an amount for a term,
# such as provisioned throughput or (below 0) a provider's discount, prorated to the range.
Source = Literal["unallocated", "platform", "idle_gpu", "fixed", "commitment"]
Basis = Literal["cost", "requests", "tokens", "even"]
_LARGEST_WEIGHT: Final = 1_000_000
_STATED: Final = ("fixed", "commitment")  # sources whose amount is in the rule


class SharedRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One shared cost and how to divide it: by a basis (such as cost or tokens), or by fixed weights of payers."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    source: Source
    by: Basis | dict[str, Annotated[int, msgspec.Meta(ge=0, le=_LARGEST_WEIGHT)]] = "cost"
    usd: str = ""  # fixed: USD for the whole range, as decimal text; commitment: for its whole term
    starts: date | None = None  # commitment: first day of its term (UTC)
    ends: date | None = None  # commitment: day after its last one
    provider: str = ""  # commitment: payers are weighted by their usage of this provider
    model: str = ""  # commitment: ... and of this model


class AllocationRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A saved allocation: the level of the payers (as in a cost report), and the shared costs in order."""

    by: str
    shared: list[SharedRule] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AllocatedLine:
    """A payer: its own cost, and its share of each shared cost in the order of the rules, in pico-USD."""

    name: str
    direct: CostSum
    shares_pico_usd: tuple[int, ...]

    @property
    def total_pico_usd(self) -> int:
        """Return own plus shared cost in pico-USD."""
        return self.direct.priced_pico_usd + sum(self.shares_pico_usd)


@dataclass(frozen=True, slots=True)
class Allocation:
    """All payers, most expensive first. `left_pico_usd`: the part of each shared cost that is not allocated."""

    rules: AllocationRules
    lines: tuple[AllocatedLine, ...]
    shared_pico_usd: tuple[int, ...]
    left_pico_usd: tuple[int, ...]

    @property
    def direct_pico_usd(self) -> int:
        """Return the sum of the payers' own costs in pico-USD."""
        return sum(line.direct.priced_pico_usd for line in self.lines)

    @property
    def total_pico_usd(self) -> int:
        """Return own plus shared cost in pico-USD: the sum of the lines and the unallocated rest."""
        return self.direct_pico_usd + sum(self.shared_pico_usd)


def allocate_costs(store: StoreClient, question: CostQuestion, rules: AllocationRules, rates: RateBook) -> Allocation:
    """Read a range's costs by the rules' level and distribute the shared costs. `question.by` is ignored.

    Raises InvalidRequest for an invalid level or amount, StoreUnavailable.
    """
    by = ("tenant",) if rules.by == "tenant" else ("tenant", rules.by)
    asked = CostQuestion(question.start, question.end, by, None, question.zone, asked_at=question.asked_at)
    direct: dict[str, list[CostSum]] = {}
    platform: list[CostSum] = []
    for line in cost_report(store, asked, with_attempts=False).lines:
        if line.path[0] == PLATFORM_TENANT:
            platform.append(line.sums)
        else:
            direct.setdefault(line.path[-1], []).append(line.sums)
    payers = {name: total_of(sums) for name, sums in direct.items()}
    sources = {rule.source for rule in rules.shared}
    amounts: dict[Source, int] = {}
    if "platform" in sources:
        amounts["platform"] = total_of(platform).priced_pico_usd
    elif platform:
        payers[PLATFORM_TENANT] = total_of(platform)
    if "unallocated" in sources:
        amounts["unallocated"] = payers.pop("", CostSum()).priced_pico_usd
    if "idle_gpu" in sources:
        books = gpu_books(store, asked.periods[0])
        cost = gpu_cost(books.ledger, books.use, rates, books.models, "platform", {})
        amounts["idle_gpu"] = sum(cost.lines_pico_usd.get(line, 0) for line in IDLE_LINES)
    used = {
        number: _used(store, asked, rule) for number, rule in enumerate(rules.shared) if rule.provider or rule.model
    }
    return distribute(rules, payers, amounts, asked.periods[0], used)


def _used(store: StoreClient, asked: CostQuestion, rule: SharedRule) -> dict[str, CostSum]:
    """Return the payers' usage of a rule's provider and model."""
    payer, by = len(asked.by) - 1, asked.by if "provider" in asked.by else (*asked.by, "provider")
    question, provider = replace(asked, by=by, model=rule.model or None), by.index("provider")
    found: dict[str, list[CostSum]] = {}
    for line in cost_report(store, question, with_attempts=False).lines:
        if rule.provider in ("", line.path[provider]):
            found.setdefault(line.path[payer], []).append(line.sums)
    return {name: total_of(sums) for name, sums in found.items()}


def distribute(
    rules: AllocationRules,
    payers: Mapping[str, CostSum],
    amounts: Mapping[Source, int],
    period: Period | None = None,
    used: Mapping[int, Mapping[str, CostSum]] | None = None,
) -> Allocation:
    """Divide each shared cost among payers by its rule; a part without a payer is left unallocated.

    `amounts`: of the sources whose amount is not in the rule. `period`: the range to prorate commitments to. `used`:
    usage to weight payers by, by the rule's number, instead of all their usage. Raises InvalidRequest for an invalid
    amount in a rule.
    """
    names = sorted(payers)
    shared, left = [], []
    parts: dict[str, list[int]] = {name: [] for name in names}
    for number, rule in enumerate(rules.shared):
        amount = _amount(rule, amounts, period)
        weighed = payers if used is None or number not in used else used[number]
        weights = [_weight(rule, name, weighed.get(name, CostSum())) for name in names]
        sign = -1 if amount < 0 else 1  # may be negative: credits on requests without a name may exceed their cost
        given = [sign * part for part in split_exactly(abs(amount), weights)]
        for name, part in zip(names, given, strict=True):
            parts[name].append(part)
        shared.append(amount)
        left.append(amount - sum(given))
    lines = (AllocatedLine(name, payers[name], tuple(parts[name])) for name in names)
    ordered = sorted(lines, key=lambda line: (-line.total_pico_usd, line.name))
    return Allocation(rules, tuple(ordered), tuple(shared), tuple(left))


def check_rules(rules: AllocationRules) -> None:
    """Raise InvalidRequest if a source is used twice, or if an amount is missing or not allowed for its source."""
    seen: set[str] = set()
    for rule in rules.shared:
        if rule.source not in _STATED and rule.source in seen:
            raise InvalidRequest(f"{rule.source} is shared twice; divide it by one rule", param="shared")
        seen.add(rule.source)
        if (rule.source in _STATED) != bool(rule.usd):
            raise InvalidRequest(
                f"the shared cost {rule.name!r}: `usd` belongs to the sources fixed and commitment, and only to them",
                param="usd",
            )
        if rule.source in _STATED:
            _stated(rule)
        _check_term(rule)


def _check_term(rule: SharedRule) -> None:
    if rule.source != "commitment":
        for name in ("starts", "ends", "provider", "model"):
            if getattr(rule, name):
                raise InvalidRequest(
                    f"the shared cost {rule.name!r}: `{name}` belongs to source commitment, and only to it", param=name
                )
    elif rule.starts is None or rule.ends is None or rule.ends <= rule.starts:
        raise InvalidRequest(
            f"the commitment {rule.name!r} needs a term: `starts`, and `ends` on a later day", param="ends"
        )


def _amount(rule: SharedRule, amounts: Mapping[Source, int], period: Period | None) -> int:
    if rule.source not in _STATED:
        return amounts.get(rule.source, 0)
    stated = _stated(rule)
    if rule.source == "fixed":
        return stated
    assert rule.starts is not None and rule.ends is not None and period is not None
    start, end = (int(datetime.combine(day, time.min, UTC).timestamp()) for day in (rule.starts, rule.ends))
    # Difference of the amortised amounts at both ends of the range, so that adjacent ranges sum to the whole.
    return _amortised(stated, start, end, period.end_s) - _amortised(stated, start, end, period.start_s)


def _amortised(amount: int, start: int, end: int, until: int) -> int:
    return amount * min(max(until - start, 0), end - start) // (end - start)


def _stated(rule: SharedRule) -> int:
    try:
        amount = pico_usd(Decimal(rule.usd))
    except (InvalidOperation, ValueError) as error:
        raise InvalidRequest(
            f"the shared cost {rule.name!r}: {rule.usd[:40]!r} is not an amount in USD", param="usd"
        ) from error
    if amount < 0 and rule.source == "fixed":
        raise InvalidRequest(f"the shared cost {rule.name!r} is {rule.usd} USD; give an amount from 0", param="usd")
    return amount


def _weight(rule: SharedRule, name: str, sums: CostSum) -> int:
    if isinstance(rule.by, dict):
        return rule.by.get(name, 0)
    return {
        "cost": max(sums.priced_pico_usd, 0),  # credits may make it negative
        "requests": sums.requests,
        "tokens": sums.input_tokens + sums.output_tokens,
        "even": 1,
    }[rule.by]
