"""What each attempt used and what it costs: reported usage first, what was counted on the way next, never a zero."""

from contracts.configuration import Snapshot, TargetSpec
from contracts.prices import AnyCard, Cost, bill
from contracts.records import CountMethod
from contracts.requests import AnyRequest
from contracts.usage import OUTPUT_LEAVES, UNKNOWN_USAGE, Usage
from gateway.counting import TokenEstimator, prompt_bytes
from gateway.known_cards import KnownCards
from gateway.life import Attempt, Life
from gateway.progress import Progress


class Settlement:
    """Prices attempts and sums them up for the request."""

    def __init__(self, estimator: TokenEstimator) -> None:
        self._estimator = estimator
        self._cards = KnownCards()

    def settle(self, life: Life) -> None:
        """Set usage and cost on every attempt and on the request, which pays for the answer it got.

        A failed attempt's usage stands on its own record; the request's usage is that of its last attempt which may
        have begun. Where that continued another's answer, the outputs of both are the request's, and the prompt is
        paid once.
        """
        request = life.request
        if request is None:
            return
        for attempt in life.attempts:
            attempt.usage, attempt.count_method = self._usage_of(attempt, request, life)
            attempt.cost = self._price(attempt.usage, attempt, request.model, life)
        last = life.last_attempt
        if last is None:
            return
        paid = last
        if not last.was_begun:
            paid = next((attempt for attempt in reversed(life.attempts) if attempt.was_begun), last)
        life.usage, life.count_method, life.cost = paid.usage, paid.count_method, paid.cost
        if last.reason != "continuation":
            return
        first, *others = life.answering_attempts
        life.usage = first.usage
        for attempt in others:
            life.usage = life.usage.plus(_outputs_of(attempt.usage))
        life.cost = self._price(life.usage, last, request.model, life)

    def card_for(
        self, model: str, tenant: str, target: TargetSpec, at_ns: int, snapshot: Snapshot, *, is_batched: bool = False
    ) -> AnyCard | None:
        """Give the card that a target's answers were priced with at a moment (Unix nanoseconds)."""
        seller = target.provider or target.kind
        return self._cards.card_for(model, tenant, seller, at_ns, snapshot, is_batched=is_batched)

    def _usage_of(self, attempt: Attempt, request: AnyRequest, life: Life) -> tuple[Usage, CountMethod]:
        result, progress = attempt.result, attempt.progress
        if result.usage.is_known:
            tokens_in = result.usage.input_tokens
            if tokens_in and result.count_method in ("reported", "exact"):
                self._estimator.learn(request.model, prompt_bytes(life.body), tokens_in, life.who.tenant)
            return result.usage, result.count_method
        if progress.usage.output_tokens is not None:  # cut short after a report of the whole
            return progress.usage, progress.count_method
        if progress.usage.is_known:  # cut short: the input is known, the output by what passed
            return progress.usage.plus(_made_so_far(progress)), progress.count_method
        if attempt.error is not None and not progress.tokens:
            return UNKNOWN_USAGE, "none"  # it failed before it produced anything we know of
        tokens_in = self._estimator.estimate(request.model, prompt_bytes(life.body), life.who.tenant)
        made = _made_so_far(progress) if progress.tokens else UNKNOWN_USAGE
        if result.answer_bytes is not None:
            made = self._said(result.answer_bytes, request, life)
        return Usage(input_text=tokens_in).plus(made), "estimate"

    def _said(self, size: int, request: AnyRequest, life: Life) -> Usage:
        """Estimate the output of a whole answer whose target did not count it."""
        return Usage(output_text=self._estimator.estimate(request.model, size, life.who.tenant))

    def _price(self, usage: Usage, attempt: Attempt, model: str, life: Life) -> Cost:
        tenant, at_ns = life.who.tenant, life.started_at_ns
        card = self.card_for(model, tenant, attempt.target, at_ns, life.snapshot, is_batched=life.is_batched)
        return bill(usage, life.operation, card)


def _made_so_far(progress: Progress) -> Usage:
    thought = progress.reasoning_tokens
    return Usage(output_text=progress.tokens - thought, output_reasoning=thought or None)


def _outputs_of(usage: Usage) -> Usage:
    return Usage(**{leaf: getattr(usage, leaf) for leaf in OUTPUT_LEAVES})
