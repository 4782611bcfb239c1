"""Groups usage so that a card can price each group's sums: equal tier, batch price, card and known meters."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from analytics.cost.question import CostQuestion
from analytics.cost.report import check_not_deleted
from analytics.queries import query
from analytics.rows import money_of, number_of, numbers_of, text_of
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.metering.usage import LEAVES, TOKEN_LEAVES, Leaf
from contracts.pricing.money import pico_usd
from contracts.pricing.prices import AnyCard, PriceCard
from contracts.pricing.service_tiers import BATCH

MAX_GROUPS: Final = 2_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LEVELS: Final = ("tenant", "team", "project", "key", "model", "provider", "price")
_MAX_STEPS: Final = 4_000  # of thresholds or changes: bits in a group's shape


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """Requests with the same unit prices. `tokens` has their sums in the order of LEAVES.

    `used` are the meters that every request of the group has used. `at` and `input_tokens` (`None`: unknown) select the
    price card and price tier of all of them. `state` is the requests' `price_state` (migration 0030).
    `unpriced_requests` counts those with usage and no amount; `unpriced_leaves` are unpriced meters of requests that
    have an amount for others.
    """

    tenant: str
    team: str
    project: str
    key: str
    model: str
    provider: str
    price_version: str
    basis: str
    period_start: int
    at: datetime
    input_tokens: int | None
    used: tuple[Leaf, ...]
    is_billable: bool
    is_engine: bool
    is_kept_answer: bool
    is_batch: bool
    requests: int
    unpriced_requests: int
    cost_pico_usd: int
    tokens: tuple[int, ...]
    is_estimated: bool = False
    state: str = "priced"
    unpriced_leaves: tuple[str, ...] = ()
    service_tier: str = ""  # by which they were priced, even if it has no price
    region: str = ""  # of the targets; empty unless a card is for a region
    tags: str = ""  # JSON, sorted pairs of name and value; empty unless `by` has "tags"

    @property
    def priced_requests(self) -> int:
        """Return the number of requests with an amount."""
        return 0 if self.state == "failed" else self.requests - self.unpriced_requests

    @property
    def tier(self) -> str:
        """Return the service tier by which a card prices them; batches are recognised by their recorded price."""
        return self.service_tier or (BATCH if self.is_batch else "")

    @property
    def total_tokens(self) -> int:
        """Return the sum over all meters."""
        return sum(self.tokens[LEAVES.index(leaf)] for leaf in TOKEN_LEAVES)


def usage_groups(
    store: StoreClient, question: CostQuestion, cards: Iterable[AnyCard], *, starts: Sequence[int] | None = None
) -> list[UsageGroup]:
    """Read a question's requests in groups that each of `cards` can price by sums; `by` may have LEVELS and "tags".

    Groups always differ by tenant, model, provider, price version and any region that has cards. `starts` (Unix
    seconds, ascending, from the range's start) splits the range instead of the question's time unit. Raises
    InvalidRequest if the requests are no longer stored, StoreUnavailable.
    """
    question.check_kept("requests")
    check_not_deleted(store, question)
    cards = list(cards)
    thresholds = thresholds_of(cards)
    changes = changes_ns(cards, question)
    if starts is None:
        starts = [period.start_s for period in question.periods]
    parameters = {
        "start": starts[0],
        "end": int(question.end.timestamp()),
        "starts": list(starts),
        "by": list(question.by),
        "thresholds": thresholds,
        "changes": changes,
        "own_regions": own_regions(cards),
        "tenant": question.tenant,
        "team": question.team,
        "project": question.project,
        "model": question.model,
        "line_limit": MAX_GROUPS + 1,
    }
    rows = store.query(query("usage_groups"), parameters)
    if len(rows) > MAX_GROUPS:
        raise InvalidRequest("the range has too many groups to be priced at once; take a shorter one", param="start")
    return [_group(row, question, thresholds, changes) for row in rows]


def _group(
    row: dict[str, object], question: CostQuestion, thresholds: Sequence[int], changes: Sequence[int]
) -> UsageGroup:
    shape = number_of(row["shape"])
    tier, segment, kinds = shape >> 8 & 0xFFF, shape >> 20 & 0xFFFFF, shape >> 40
    has_input, has_output, needs_no_output, has_units = (bool(shape & 1 << bit) for bit in (0, 1, 2, 7))
    at = moment_in(segment, question, changes)
    return UsageGroup(
        tenant=text_of(row["tenant_label"]),
        team=text_of(row["team_label"]),
        project=text_of(row["project_label"]),
        key=text_of(row["key_label"]),
        model=text_of(row["model_label"]),
        provider=text_of(row["provider_label"]),
        price_version=text_of(row["price_label"]),
        basis=text_of(row["basis_label"]),
        period_start=number_of(row["period_start"]),
        at=at,
        input_tokens=None if not has_input else thresholds[tier - 1] + 1 if tier else 0,
        used=tuple(leaf for bit, leaf in enumerate(LEAVES) if kinds & 1 << bit),
        is_billable=has_units or (has_input and (has_output or needs_no_output)),
        is_engine=bool(shape & 1 << 3),
        is_kept_answer=bool(shape & 1 << 4),
        is_batch=bool(shape & 1 << 5),
        is_estimated=bool(shape & 1 << 6),
        state=text_of(row["state_label"]),
        unpriced_leaves=tuple(filter(None, text_of(row["unpriced_labels"]).split(","))),
        requests=number_of(row["request_count"]),
        unpriced_requests=number_of(row["unpriced_count"]),
        cost_pico_usd=pico_usd(money_of(row["cost_sum"])),
        tokens=tuple(int(count) for count in numbers_of(row["leaf_sums"])),
        service_tier=text_of(row["tier_label"]),
        region=text_of(row["region_label"]),
        tags=text_of(row["tags_label"]),
    )


def own_regions(cards: Iterable[AnyCard]) -> list[str]:
    """Return the regions that have cards."""
    return sorted({card.region for card in cards if card.region})


def thresholds_of(cards: Sequence[AnyCard]) -> list[int]:
    """Return the cards' thresholds of input tokens, ascending. Raises InvalidRequest if there are too many."""
    found = {tier.above_input_tokens for card in cards if isinstance(card, PriceCard) for tier in card.tiers}
    return _few(sorted(found), "thresholds of tiers")


def changes_ns(cards: Sequence[AnyCard], question: CostQuestion) -> list[int]:
    """Return the times (Unix ns) within the range at which a card begins or ends.

    Raises InvalidRequest if there are too many.
    """
    moments = {moment for card in cards for moment in (card.valid_from, card.valid_to) if moment is not None}
    within = sorted(moment for moment in moments if question.start < moment < question.end)
    return _few([(moment - _EPOCH) // timedelta(microseconds=1) * 1000 for moment in within], "changes of cards")


def moment_in(segment: int, question: CostQuestion, changes: Sequence[int]) -> datetime:
    """Return the start of a segment, which is the time between two changes of cards, numbered from 0."""
    return question.start if segment == 0 else _EPOCH + timedelta(microseconds=changes[segment - 1] // 1000)


def _few(steps: list[int], what: str) -> list[int]:
    if len(steps) > _MAX_STEPS:
        raise InvalidRequest(f"the price cards have {len(steps)} {what}; at most {_MAX_STEPS} can be told apart")
    return steps
