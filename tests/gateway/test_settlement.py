"""What an attempt used and cost, for every way it can end."""

from decimal import Decimal

import pytest

from contracts.api.chat import ChatRequest, Message
from contracts.api.generation import Delta, Result
from contracts.errors import (
    ClientGone,
    ConnectTimeout,
    EngineUnavailable,
    HedgeLost,
    TargetMisconfigured,
    TollkeeperError,
    UnsupportedParameter,
    UpstreamBroken,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice, PriceBook, price_card
from contracts.serving.configuration import EMPTY_SNAPSHOT, Snapshot, TargetSpec
from gateway.apis.operations import EMBEDDINGS
from gateway.limits.estimates.counting import TokenEstimator
from gateway.request.attempt import Attempt
from gateway.request.charges.settlement import Settlement
from gateway.request.request_state import RequestState
from gateway.routing.drill.standalone import standalone_chat

PRICED = Snapshot(
    1, {}, {}, {}, PriceBook([price_card(NewPrice("m", "v1", {"input_text": Decimal(1), "output_text": Decimal(2)}))])
)


def life_with(*attempts: Attempt, snapshot: Snapshot = PRICED) -> RequestState:
    request = ChatRequest("m", [Message("user", "a")])
    life = standalone_chat(b"x" * 40, 1_700_000_000 * 10**9, 0, snapshot)
    life.request = request
    life.attempts.extend(attempts)
    return life


def attempt(tokens: int = 0, **fields) -> Attempt:
    made = Attempt(1, TargetSpec("t", "p", "scripted"), "first", 0, 0)
    for number in range(tokens):
        made.take(Delta(tokens=1), number * 1000)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def settlement() -> Settlement:
    return Settlement(TokenEstimator())


def test_reported_usage_goes_before_what_was_counted(settlement):
    life = life_with(attempt(5, result=Result(usage=Usage(7, output_text=9), count_method="reported")))
    settlement.settle(life)
    assert (life.usage, life.count_method) == (Usage(7, output_text=9), "reported")
    assert life.cost.total_pico_usd == 7 * 1_000_000 + 9 * 2_000_000


def test_a_good_answer_without_usage_is_estimated(settlement):
    life = life_with(attempt(5, result=Result(finish_reason="stop")))
    settlement.settle(life)
    assert (life.usage, life.count_method) == (Usage(10, output_text=5), "estimate")


def test_a_call_cut_short_pays_its_known_input_and_what_passed(settlement):
    cut = attempt(5, error=ClientGone("left"))
    cut.reported_usage, cut.reported_method = Usage(7), "exact"
    life = life_with(cut)
    settlement.settle(life)
    assert (life.usage, life.count_method) == (Usage(7, output_text=5), "exact")


def test_a_call_cut_short_after_a_whole_report_pays_the_report_once(settlement):
    cut = attempt(5, error=ClientGone("left"))
    cut.reported_usage, cut.reported_method = Usage(7, output_text=6), "reported"
    life = life_with(cut)
    settlement.settle(life)
    assert (life.usage, life.count_method) == (Usage(7, output_text=6), "reported")


@pytest.mark.parametrize("setting", [None, "free", "estimate"])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UpstreamError("500"), "on_error"),
        (UpstreamOverloaded("503"), "on_error"),
        (UpstreamRejected("400"), "on_error"),
        (UpstreamTimeout("silent"), "on_timeout"),
        (UpstreamBroken("cut"), "on_break"),
        (TollkeeperError("a bug"), "on_break"),
        (ClientGone("left"), "on_cancel"),
        (HedgeLost("late"), "on_cancel"),
    ],
)
def test_a_failure_before_the_first_token_costs_what_its_target_says(settlement, error, kind, setting):
    failed = attempt(error=error)
    if setting is not None:
        failed.target = TargetSpec("t", "p", "openai_http", settings={"billing": {kind: setting}})
    life = life_with(failed)
    settlement.settle(life)
    if (setting or ("free" if kind == "on_error" else "estimate")) == "free":
        assert (life.usage, life.count_method) == (Usage(), "none")
        assert (life.cost.total_pico_usd, life.cost.basis) == (0, "free")
    else:
        assert (life.usage, life.count_method) == (Usage(10, output_text=0), "estimate")
        assert (life.cost.total_pico_usd, life.cost.basis) == (10 * 1_000_000, "price_card")


@pytest.mark.parametrize(
    "error",
    [
        UpstreamUnreachable("refused"),
        ConnectTimeout("no connection"),
        UpstreamRateLimited("429"),
        TargetMisconfigured("404"),
        EngineUnavailable("away"),
        UnsupportedParameter("logprobs"),
    ],
)
def test_a_request_that_no_target_worked_on_is_free_whatever_the_target_says(settlement, error):
    failed = attempt(error=error)
    billing = dict.fromkeys(("on_error", "on_timeout", "on_break", "on_cancel"), "estimate")
    failed.target = TargetSpec("t", "p", "openai_http", settings={"billing": billing})
    life = life_with(failed)
    settlement.settle(life)
    assert (life.cost.total_pico_usd, life.cost.basis) == (0, "free")


def test_tokens_that_came_are_charged_whatever_the_target_says(settlement):
    cut = attempt(5, error=UpstreamTimeout("silent"))
    cut.target = TargetSpec("t", "p", "openai_http", settings={"billing": {"on_timeout": "free"}})
    life = life_with(cut)
    settlement.settle(life)
    assert life.usage == Usage(10, output_text=5) and life.cost.total_pico_usd == 20 * 1_000_000


def test_a_free_failure_after_one_that_is_charged_leaves_that_cost(settlement):
    silent, failed = attempt(error=UpstreamTimeout("silent")), attempt(error=UpstreamError("500"))
    for life in (life_with(silent, failed), life_with(failed, silent)):
        settlement.settle(life)
        assert life.cost == silent.cost and life.cost.total_pico_usd == 10 * 1_000_000
    assert failed.cost.basis == "free" and failed.usage == Usage()


def test_a_free_failure_needs_no_card_and_an_estimate_without_one_is_unpriced(settlement):
    for error, expected in ((UpstreamError("500"), (0, "free")), (UpstreamTimeout("silent"), (None, "unpriced"))):
        life = life_with(attempt(error=error), snapshot=EMPTY_SNAPSHOT)
        settlement.settle(life)
        assert (life.cost.total_pico_usd, life.cost.basis) == expected


def test_a_request_that_reached_no_model_is_free(settlement):
    life = life_with()
    life.error = ClientGone("left the queue")
    settlement.settle(life)
    assert (life.cost.total_pico_usd, life.cost.basis) == (0, "free")


def test_half_a_usage_is_not_given_half_a_price(settlement):
    life = life_with(attempt(result=Result(usage=Usage(7), count_method="reported")))
    settlement.settle(life)
    assert life.usage == Usage(7)
    assert (life.cost.total_pico_usd, life.cost.basis) == (None, "unknown_usage")


def test_an_embedding_is_priced_by_its_input_alone(settlement):
    life = life_with(attempt(result=Result(usage=Usage(7), count_method="reported")))
    life.operation = EMBEDDINGS
    settlement.settle(life)
    assert life.cost.total_pico_usd == 7 * 1_000_000


def test_each_attempt_is_priced_with_its_own_providers_card(settlement):
    cards = [
        price_card(NewPrice("m", "any", {"input_text": Decimal(1), "output_text": Decimal(2)})),
        price_card(NewPrice("m", "azure", {"input_text": Decimal(10), "output_text": Decimal(20)}, provider="azure")),
    ]
    used = Result(usage=Usage(1, output_text=1), count_method="reported")
    first, second = attempt(result=used), attempt(result=used)
    second.target = TargetSpec("u", "p", "openai_http", provider="azure")
    settlement.settle(life_with(first, second, snapshot=Snapshot(1, {}, {}, {}, PriceBook(cards))))
    assert [(made.cost.version, made.cost.total_pico_usd) for made in (first, second)] == [
        ("any", 3_000_000),
        ("azure", 30_000_000),
    ]


def test_a_model_without_a_card_is_unpriced(settlement):
    life = life_with(attempt(3, result=Result(finish_reason="stop")), snapshot=EMPTY_SNAPSHOT)
    settlement.settle(life)
    assert life.cost.total_pico_usd is None and life.usage.is_known


def test_the_request_pays_for_its_last_attempt_and_each_attempt_has_its_own_cost(settlement):
    failed = attempt(2, error=UpstreamError("broke"))
    good = attempt(result=Result(usage=Usage(7, output_text=1), count_method="exact"))
    life = life_with(failed, good)
    settlement.settle(life)
    assert failed.cost.total_pico_usd == 10 * 1_000_000 + 2 * 2_000_000
    assert life.cost == good.cost and life.usage == Usage(7, output_text=1)


def test_reports_teach_the_estimate_and_estimates_do_not(settlement):
    settlement.settle(life_with(attempt(result=Result(usage=Usage(40, output_text=1), count_method="reported"))))
    for _ in range(3):
        life = life_with(attempt(1, result=Result(finish_reason="stop")))
        settlement.settle(life)
        assert life.usage.input_text == 40


def test_a_request_pays_for_the_attempt_that_began_whichever_failed_last(settlement):
    broken, refused = attempt(2, error=UpstreamError("broke")), attempt(error=UpstreamUnreachable("refused"))
    for life in (life_with(broken, refused), life_with(refused, broken)):
        settlement.settle(life)
        assert life.usage == Usage(10, output_text=2) and life.cost == broken.cost
