"""Usage and cost of each attempt: as the target reported it, else as counted, else estimated.

An attempt that failed before any token, in a way that is not billed, is free (`charging.py`).
"""

import logging
from typing import Final

from msgspec import structs

from contracts.api.completion import CompletionRequest
from contracts.api.embedding import EmbeddingRequest
from contracts.api.generation import Result
from contracts.api.media import MediaRequest
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidUsage
from contracts.metering.plain_counts import plain_counts
from contracts.metering.usage import CACHE_WRITE_LEAVES, OUTPUT_LEAVES, UNKNOWN_USAGE, Leaf, Usage
from contracts.pricing.prices import (
    FREE_OF_CHARGE,
    INPUT_ONLY_OPERATIONS,
    UNKNOWN_COST,
    AnyCard,
    Cost,
    PriceBook,
    bill,
    is_billable,
)
from contracts.recording.moments import utc_moment
from contracts.recording.records import CountMethod
from contracts.serving.configuration import Snapshot, TargetSpec
from gateway.limits.clipping import most_of_all
from gateway.limits.estimates.counting import TokenEstimator, prompt_bytes, sound_of
from gateway.replies.progress import Progress
from gateway.request.attempt import Attempt, answering
from gateway.request.charges.charging import is_free
from gateway.request.request_state import RequestState

_log = logging.getLogger(__name__)

_NO_PARTS: Final[dict[str, int]] = {}
_OURS: Final = "engine"  # the kind of target
_MAX_KEPT: Final = 50_000  # cards
_NO_BOOK: Final = PriceBook()


class Settlement:
    """Computes usage and cost of attempts, and sums them up for the request."""

    def __init__(self, estimator: TokenEstimator) -> None:
        self._estimator = estimator
        self._cards = KnownCards()

    def settle(self, life: RequestState) -> None:
        """Set usage and cost of every attempt and of the request, which pays for the answer that it got.

        A failed attempt's usage is on its own record. The request's usage is that of its last attempt that is not free.
        If that attempt continued an earlier one's answer, the request has the output of both and the prompt once. A
        request that reached no model is free.
        """
        last = life.last_attempt
        if life.request is None or last is None:
            if life.error is not None and not life.is_hit:
                life.cost = FREE_OF_CHARGE
            return
        if len(life.attempts) == 1 and last.error is None and _settle_plainly(last, life):
            return
        for attempt in life.attempts:
            self._settle_attempt(attempt, _model_of(attempt, life), life)
        paid = next((attempt for attempt in reversed(life.attempts) if not attempt.is_free), last)
        life.usage, life.count_method, life.cost = paid.usage, paid.count_method, paid.cost
        if last.reason == "continuation":
            life.usage, life.cost = self.answer_of(life.attempts, life)
        life.tokens_in, life.tokens_out = life.usage.input_tokens, life.usage.output_tokens

    def _settle_attempt(self, attempt: Attempt, model: str, life: RequestState) -> None:
        attempt.is_free = is_free(attempt)
        try:
            attempt.usage, attempt.count_method = self._usage_of(attempt, model, life)
        except InvalidUsage:  # counts that no column can hold come from a broken target
            _log.error("usage cannot be settled", extra={"request_id": life.id_text, "target": attempt.target.id})
            attempt.usage, attempt.count_method = UNKNOWN_USAGE, "none"
        attempt.cost = FREE_OF_CHARGE if attempt.is_free else self._price(attempt.usage, attempt, model, life)

    def answer_of(self, attempts: list[Attempt], life: RequestState) -> tuple[Usage, Cost]:
        """Return usage and cost of the answer that settled attempts produced: of the last one, and of those it
        continued.
        """
        first, *others = answering(attempts)
        if not others:
            return first.usage, first.cost
        usage = _joined(first.usage, [attempt.usage for attempt in others])
        return usage, self._price(usage, others[-1], _model_of(others[-1], life), life)

    def usage_so_far(self, attempts: list[Attempt], life: RequestState) -> Usage:
        """Return the usage of the answer that these attempts produced, while the request is still in progress."""
        *parts, last = answering(attempts)
        if not parts:
            return last.result.usage
        known = [self._usage_of(part, _model_of(part, life), life)[0] for part in parts]
        return _joined(known[0], [*known[1:], last.result.usage])

    def cost_of(self, attempts: list[Attempt], life: RequestState) -> int | None:
        """Return the cost in pico-USD of the answer that these attempts produced; `None` if it is unknown."""
        last = attempts[-1]
        return self._price(self.usage_so_far(attempts, life), last, _model_of(last, life), life).total_pico_usd

    def card_for(
        self, model: str, tenant: str, target: TargetSpec, at_ns: int, snapshot: Snapshot, *, tier: str = ""
    ) -> AnyCard | None:
        """Return the price card for a target's answers at a time (Unix nanoseconds) and service tier; `None` if there
        is none.
        """
        seller = target.provider or target.kind
        return self.card_of(model, tenant, seller, target.region, at_ns, snapshot, tier=tier)

    def card_of(
        self, model: str, tenant: str, seller: str, region: str, at_ns: int, snapshot: Snapshot, *, tier: str = ""
    ) -> AnyCard | None:
        """Return the price card for answers of a seller in a region. The seller is a provider, or a kind of target."""
        return self._cards.card_for(model, tenant, seller, region, at_ns, snapshot, tier=tier)

    def bill_usage(self, usage: Usage, operation: str, card: AnyCard | None, kind: str) -> Cost:
        """Return the cost of usage by a price card; `kind` is the kind of target that produced it."""
        if card is not None and kind == _OURS and usage.cache_write_tokens:
            usage = _as_sold(usage, card)
        if card is not None and not is_billable(usage, operation):
            return UNKNOWN_COST
        return bill(usage, operation, card)

    def _usage_of(self, attempt: Attempt, model: str, life: RequestState) -> tuple[Usage, CountMethod]:
        usage, method = self._stated_usage(attempt, model, life)
        return self._believable(usage, method, attempt, model, life)

    def _believable(
        self, usage: Usage, method: CountMethod, attempt: Attempt, model: str, life: RequestState
    ) -> tuple[Usage, CountMethod]:
        """Replace a reported count of zero by an estimate if the request had a prompt, or if the answer has text."""
        if method not in ("reported", "estimate") or attempt.is_free:
            return usage, method
        made = UNKNOWN_USAGE
        if usage.output_tokens == 0:
            made = _made_so_far(attempt) if attempt.tokens else made
            made = self._said(attempt.result, model, life) or made
        if made.is_known:
            usage, method = structs.replace(usage, **dict.fromkeys(OUTPUT_LEAVES)).plus(made), "estimate"
        if usage.input_tokens == 0 and _has_prompt(life.request):
            tokens_in = self._estimator.estimate(model, prompt_bytes(life.body), life.who.tenant)
            usage, method = usage.plus(Usage(input_text=tokens_in)), "estimate"
        return usage, method

    def _stated_usage(self, attempt: Attempt, model: str, life: RequestState) -> tuple[Usage, CountMethod]:
        """Return the usage that the target reported, else what passed through the gateway, else an estimate."""
        result = attempt.result
        if result.usage.is_known:
            tokens_in = result.usage.input_tokens
            if isinstance(life.request, MediaRequest):
                self._learn_sound(life.request, model, result.usage, life.who.tenant)
            elif tokens_in and result.count_method in ("reported", "exact"):
                self._estimator.learn(model, prompt_bytes(life.body), tokens_in, life.who.tenant)
            return result.usage, result.count_method
        if attempt.reported_usage.is_known:  # cut short
            is_media = isinstance(life.request, MediaRequest)
            return (attempt.reported_usage, attempt.reported_method) if is_media else _of_cut(attempt)
        if attempt.is_free:
            return UNKNOWN_USAGE, "none"
        if isinstance(life.request, MediaRequest):  # one that failed may be billed for what was asked
            wanted = UNKNOWN_USAGE if attempt.error is None else life.request.wanted
            return wanted, "estimate" if wanted.is_known else "none"
        tokens_in = self._estimator.estimate(model, prompt_bytes(life.body), life.who.tenant)
        is_cut = attempt.error is not None and life.operation.name not in INPUT_ONLY_OPERATIONS
        made = _made_so_far(attempt) if attempt.tokens or is_cut else UNKNOWN_USAGE
        made = self._said(result, model, life) or made
        return Usage(input_text=tokens_in).plus(made), "estimate"

    def _learn_sound(self, request: MediaRequest, model: str, usage: Usage, tenant: str) -> None:
        """Learn the duration of audio per byte, for the next reservation."""
        if request.sound_bytes and usage.milliseconds:
            self._estimator.learn(sound_of(model), request.sound_bytes, usage.milliseconds, tenant)

    def _said(self, result: Result, model: str, life: RequestState) -> Usage | None:
        """Estimate the output tokens of a complete answer whose target did not report them; `None` if it has no text.

        An estimate never exceeds the maximum that the target was given, unless the answer has more words than that.
        """
        if result.answer_bytes is None:
            return None
        tokens = self._estimator.estimate(model, result.answer_bytes, life.who.tenant)
        most = most_of_all(life, life.grant)
        return Usage(output_text=tokens if most is None else min(tokens, max(most, result.answer_words)))

    def _price(self, usage: Usage, attempt: Attempt, model: str, life: RequestState) -> Cost:
        tenant, at_ns, tier = life.who.tenant, life.started_at_ns, life.tier_of(attempt)
        card = self.card_for(model, tenant, attempt.target, at_ns, life.snapshot, tier=tier)
        cost = self.bill_usage(usage, life.operation.name, card, attempt.target.kind)
        return structs.replace(cost, tier=tier) if tier else cost


def _settle_plainly(attempt: Attempt, life: RequestState) -> bool:
    """Settle a request of plain text by its plan's rates; return whether these cover all of its usage.

    The plan's forecast and the estimators learn from it later, together with other requests.
    """
    to, result = life.to, attempt.result
    rates = None if to is None else to.text_rates
    counts = None if result.count_method != "reported" or result.service_tier else plain_counts(result.usage)
    if to is None or rates is None or counts is None:
        return False
    tokens_in, tokens_out = counts
    if not tokens_in or not tokens_out or attempt.service_tier:
        return False
    cost_in, cost_out = tokens_in * rates[0], tokens_out * rates[1]
    # Its parts are wanted where answers are added up, which a plan's are not.
    life.cost = attempt.cost = Cost(cost_in + cost_out, _NO_PARTS, (), to.price_version, to.price_basis)
    life.usage = attempt.usage = result.usage
    life.count_method = attempt.count_method = "reported"
    life.tokens_in, life.tokens_out = tokens_in, tokens_out
    life.teaches_plan = True
    return True


def _as_sold(usage: Usage, card: AnyCard) -> Usage:
    """Count cache writes of our own engines as input, if the price card has no price for cache writes.

    Otherwise a cache mark in a prompt would make the whole request unpriced.
    """
    written: dict[Leaf, int | None] = {leaf: getattr(usage, leaf) for leaf in CACHE_WRITE_LEAVES}
    unsold = [leaf for leaf, count in written.items() if count and card.rate(leaf, usage.input_tokens) is None]
    more = sum(written[leaf] or 0 for leaf in unsold)
    return structs.replace(usage, input_text=(usage.input_text or 0) + more, **dict.fromkeys(unsold))


def _of_cut(progress: Progress) -> tuple[Usage, CountMethod]:
    """Return the usage of an answer that was cut: as reported, with the output that passed if that is more."""
    usage, method = progress.reported_usage, progress.reported_method
    reported = usage.output_tokens
    if reported is not None and reported >= progress.tokens:
        return usage, method
    if method == "reported" and progress.tokens:
        method = "estimate"
    return structs.replace(usage, **dict.fromkeys(OUTPUT_LEAVES)).plus(_made_so_far(progress)), method


def _made_so_far(progress: Progress) -> Usage:
    thought = progress.reasoning_tokens
    return Usage(output_text=progress.tokens - thought, output_reasoning=thought or None)


def _has_prompt(request: AnyRequest | None) -> bool:
    """Return whether a request has text to read. A chat always has: it contains at least one message."""
    if isinstance(request, CompletionRequest):
        given = request.prompt
    elif isinstance(request, EmbeddingRequest):
        given = request.input
    else:
        return True
    return given != "" if isinstance(given, str) else any(entry not in ("", []) for entry in given)


def _model_of(attempt: Attempt, life: RequestState) -> str:
    assert life.request is not None
    return life.request.model if attempt.model is None else attempt.model.id


def _joined(first: Usage, others: list[Usage]) -> Usage:
    """Add up the parts of one answer: the outputs of all, the prompt once."""
    for usage in others:
        first = first.plus(_outputs_of(usage))
    return first


def _outputs_of(usage: Usage) -> Usage:
    return Usage(**{leaf: getattr(usage, leaf) for leaf in OUTPUT_LEAVES})


class KnownCards:
    """The price cards that hold at present, by model, tenant, seller, region and service tier.

    Each is looked up once, and remembered until some card of the snapshot's price book begins or ends.
    """

    def __init__(self) -> None:
        self._book = _NO_BOOK
        self._from_ns = self._until_ns = 0  # between these times no card starts or ends
        self._cards: dict[tuple[str, str, str, str, str], AnyCard | None] = {}

    def card_for(
        self, model: str, tenant: str, seller: str, region: str, at_ns: int, snapshot: Snapshot, *, tier: str
    ) -> AnyCard | None:
        """Return the card that was valid at a time (Unix nanoseconds) for a service tier; `None` if none was.

        `region` is the region of the target that answers.
        """
        if snapshot.prices is not self._book or not self._from_ns <= at_ns < self._until_ns:
            self._book = snapshot.prices
            self._from_ns, self._until_ns = self._book.unchanged_around(at_ns)
            self._cards.clear()
        name = (model, tenant, seller, region, tier)
        try:
            return self._cards[name]
        except KeyError:
            moment = utc_moment(at_ns)
            card = self._book.card_for(model, tenant, moment, seller, region)
            if card is not None and tier:
                card = card.at_tier(tier)
            if len(self._cards) >= _MAX_KEPT:
                self._cards.clear()
            self._cards[name] = card
            return card
