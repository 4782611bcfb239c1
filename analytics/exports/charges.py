"""Splits priced usage into charges: for each usage kind its quantity, unit price and amount.

The amounts of a group sum to its recorded cost. If its price card was deleted, and for cached responses (priced by a
policy), the group is one charge without a unit price.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from analytics.cost.question import CostQuestion
from analytics.prices.repricing import price_group
from analytics.prices.usage_groups import UsageGroup
from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient
from contracts.metering.usage import LEAVES, UNIT_LEAVES
from contracts.pricing.prices import AnyCard, PriceBook, PriceCard, card_of_version, tier_of_version
from contracts.pricing.service_tiers import BATCH

AS_RECORDED = "usage"
REQUEST = "request"
UNKNOWN_USAGE = "unknown_usage"  # meter of requests with unknown usage
CORRECTION = "correction"  # meter of booked price corrections
CREDIT = "credit"  # meter of booked credits


@dataclass(frozen=True, slots=True)
class Charge:
    """A quantity of tokens, units or requests of one kind, at one price.

    `amount_pico_usd` is `None` for usage without a price and for requests with unknown usage. `is_estimated`: the token
    counts are estimates. Failed requests are free and have no charge.

    `adjustment`: id of the adjustment of a correction or credit; `card`: the correction's price card; `invoice`: the
    credited invoice. `newly_priced_tokens`: tokens that got a price by the correction.
    """

    tenant: str
    team: str
    project: str
    key: str
    model: str
    provider: str
    price_version: str
    basis: str
    meter: str  # a usage kind, "request", "usage" (cannot be split), "correction" or "credit"
    period_start: int
    quantity: int
    unit_pico_usd: int | None
    amount_pico_usd: int | None
    above_input_tokens: int = 0  # threshold of the price tier
    is_batch: bool = False
    service_tier: str = ""  # of the price, except for batches
    is_estimated: bool = False
    adjustment: str = ""
    card: str = ""
    invoice: str = ""
    newly_priced_tokens: int = 0
    region: str = ""  # of the price card, if it is for one region
    tags: str = ""  # of the requests, as JSON pairs of (name, value)
    list_unit_pico_usd: int | None = None  # price on the general card, if the tenant's own card was used

    @property
    def is_booked(self) -> bool:
        """Return whether it is a booked entry (correction or credit), not recorded usage."""
        return bool(self.adjustment)


def correction_charges(store: StoreClient, question: CostQuestion) -> list[Charge]:
    """Return the booked corrections and credits of a question's usage, by its levels (only team, project and key) and
    periods. Raises StoreUnavailable."""
    starts = [period.start_s for period in question.periods]
    parameters = {
        "start": starts[0],
        "end": int(question.end.timestamp()),
        "starts": starts,
        "by": list(question.by),
        "tenant": question.tenant,
        "team": question.team,
        "project": question.project,
        "model": question.model,
    }
    return [
        Charge(
            tenant=text_of(row["tenant_label"]),
            team=text_of(row["team_label"]),
            project=text_of(row["project_label"]),
            key=text_of(row["key_label"]),
            model=text_of(row["model_label"]),
            provider=text_of(row["provider_label"]),
            price_version=text_of(row["price_label"]),
            basis="correction",
            meter=CREDIT if text_of(row["kind_label"]).startswith(CREDIT) else CORRECTION,
            period_start=number_of(row["period_start"]),
            quantity=number_of(row["request_count"]),
            unit_pico_usd=None,
            amount_pico_usd=number_of(row["cost_pico_sum"]),
            adjustment=text_of(row["adjustment_label"]),
            card=text_of(row["card_label"]),
            invoice=text_of(row["invoice_label"]),
            newly_priced_tokens=-number_of(row["unpriced_token_sum"]),
        )
        for row in store.query(query("correction_charges"), parameters)
    ]


def charges_of(groups: Iterable[UsageGroup], cards: Iterable[AnyCard]) -> list[Charge]:
    """Split groups into charges, with equal ones merged, in order of payer, model, price and meter."""
    cards = list(cards)
    by_version = {card.version: card for card in cards}
    book = PriceBook(cards)
    found: dict[tuple[object, ...], tuple[Charge, int, int]] = {}
    for group in groups:
        for charge in _charges(group, by_version, book):
            # Unpriced charges are not merged with priced ones.
            name = (*(getattr(charge, field) for field in _NAME), charge.amount_pico_usd is None)
            known = found.get(name)
            amount = charge.amount_pico_usd or 0
            found[name] = (
                charge,
                charge.quantity + (known[1] if known else 0),
                amount + (known[2] if known else 0),
            )
    return [
        replace(charge, quantity=quantity, amount_pico_usd=None if charge.amount_pico_usd is None else amount)
        for _, (charge, quantity, amount) in sorted(found.items(), key=lambda pair: tuple(map(str, pair[0])))
    ]


_NAME = (
    *("tenant", "team", "project", "key", "model", "provider", "price_version", "basis", "meter", "period_start"),
    *("unit_pico_usd", "above_input_tokens", "is_batch", "service_tier", "region", "is_estimated", "tags"),
    "list_unit_pico_usd",
)


def _charges(group: UsageGroup, by_version: Mapping[str, AnyCard], book: PriceBook) -> Iterable[Charge]:
    if group.state == "failed":
        if group.cost_pico_usd:  # the record's own amount takes precedence
            yield _charge(group, AS_RECORDED, group.total_tokens, None, group.cost_pico_usd)
        return
    if group.state == "unknown_usage":
        yield _charge(group, UNKNOWN_USAGE, group.requests, None, None)
        return
    if not group.priced_requests:
        units = [] if group.total_tokens else [leaf for leaf in group.used if leaf in UNIT_LEAVES]
        for unit in units:
            yield _charge(group, unit, group.tokens[LEAVES.index(unit)], None, None)
        if not units:
            yield _charge(group, AS_RECORDED, group.total_tokens, None, None)
        return
    without = {leaf: group.tokens[LEAVES.index(leaf)] for leaf in LEAVES if leaf in group.unpriced_leaves}
    for leaf, quantity in without.items():
        yield _charge(group, leaf, quantity, None, None)
    card = card_of_version(group.price_version, by_version)
    cost = price_group(group, card)
    # If one kind of token has no price, the charges are those of the other kinds.
    if (
        card is None
        or group.is_kept_answer
        or set(cost.unpriced) != set(without)
        or sum(cost.parts.values()) != group.cost_pico_usd
    ):
        tokens = group.total_tokens - sum(count for leaf, count in without.items() if leaf not in UNIT_LEAVES)
        yield _charge(group, AS_RECORDED, tokens, None, group.cost_pico_usd)
        return
    # List price: the general card at the same time, to which the tenant's own card is a discount.
    listed = book.card_for(group.model, "", group.at, group.provider, group.region) if card.tenant else None
    listed = None if listed is None else listed.at_tier(group.tier)
    for meter, amount in cost.parts.items():
        if meter == REQUEST:
            fee = None if listed is None else listed.request_pico_usd
            charge = _charge(group, meter, group.requests, card.request_pico_usd, amount)
            yield replace(charge, list_unit_pico_usd=fee, region=card.region)
            continue
        # Cache writes on own engines are priced as input, so they are on that line.
        priced_as = meter
        rate = card.rate(meter, group.input_tokens)  # type: ignore[arg-type]  # the parts' other names are leaves
        if rate is None and meter == "output_reasoning":
            priced_as, rate = "output_text", card.rate("output_text", group.input_tokens)
        quantity = amount // rate if rate else group.tokens[LEAVES.index(meter)]
        charge = _charge(group, meter, quantity, rate, amount, _tier(card, priced_as, group.input_tokens))
        of_list = None if listed is None else listed.rate(priced_as, group.input_tokens)  # type: ignore[arg-type]
        yield replace(charge, list_unit_pico_usd=of_list, region=card.region)


def _tier(card: AnyCard, leaf: str, input_tokens: int | None) -> int:
    """Return the threshold of the price tier for a usage kind and input length; 0 for the base price."""
    if not isinstance(card, PriceCard) or input_tokens is None:
        return 0
    above = (tier.above_input_tokens for tier in card.tiers if leaf in tier.rates)  # highest threshold first
    return next((threshold for threshold in above if input_tokens > threshold), 0)


def _charge(
    group: UsageGroup, meter: str, quantity: int, unit: int | None, amount: int | None, above_input_tokens: int = 0
) -> Charge:
    return Charge(
        group.tenant,
        group.team,
        group.project,
        group.key,
        group.model,
        group.provider,
        group.price_version,
        group.basis,
        meter,
        group.period_start,
        quantity,
        unit,
        amount,
        above_input_tokens,
        group.is_batch and unit is not None,
        "" if unit is None or group.tier == BATCH else tier_of_version(group.price_version) and group.tier,
        group.is_estimated and amount is not None,
        tags=group.tags,
    )
