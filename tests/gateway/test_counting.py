"""The calibrated estimate of input tokens, and what of a body it is made from."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.estimates.counting import ENOUGH_REPORTS, IMAGE_BYTES, TokenEstimator, prompt_bytes


def test_before_any_report_four_bytes_are_a_token():
    assert TokenEstimator().estimate("m", 400) == 100


def test_the_first_report_is_believed_and_later_ones_move_the_average():
    estimator = TokenEstimator()
    estimator.learn("m", 1000, 500)
    assert estimator.estimate("m", 1000) == 500
    for _ in range(200):
        estimator.learn("m", 1000, 100)
    assert 99 <= estimator.estimate("m", 1000) <= 101


def test_each_model_has_its_own_ratio():
    estimator = TokenEstimator()
    estimator.learn("dense", 100, 100)
    assert estimator.estimate("dense", 100) == 100
    assert estimator.estimate("other", 100) == 25


@given(st.lists(st.tuples(st.integers(-5, 10**9), st.integers(-5, 2**32))), st.integers(0, 10**8))
def test_whatever_is_reported_an_estimate_is_at_least_one(reports, size):
    estimator = TokenEstimator()
    for request_bytes, tokens in reports:
        estimator.learn("m", request_bytes, tokens)
    assert estimator.estimate("m", size) >= 1


@pytest.mark.parametrize("reports", [ENOUGH_REPORTS - 1, ENOUGH_REPORTS, ENOUGH_REPORTS + 1])
def test_a_tenant_has_its_own_ratio_once_it_has_reported_enough(reports):
    estimator = TokenEstimator()
    for _ in range(500):
        estimator.learn("m", 1000, 250, "english")
    for _ in range(reports):
        estimator.learn("m", 1000, 500, "chinese")
    own = estimator.estimate("m", 1000, "chinese")
    assert own == 500 if reports >= ENOUGH_REPORTS else own < 400
    assert estimator.estimate("m", 1000, "english") == 250
    assert estimator.estimate("m", 1000, "new") == estimator.estimate("m", 1000)


def test_the_error_is_unknown_before_two_reports_and_then_the_share_that_estimates_were_off_by():
    estimator = TokenEstimator()
    assert estimator.error("acme", "m") is None
    estimator.learn("m", 1000, 100)
    assert estimator.error("acme", "m") is None
    estimator.learn("m", 1000, 80)  # 100 was expected: off by a quarter
    assert estimator.error("acme", "m") == pytest.approx(0.25)
    for _ in range(300):
        estimator.learn("m", 1000, 80)
    assert estimator.error("acme", "m") == pytest.approx(0, abs=1e-6)


def test_the_upper_estimate_has_a_wide_margin_before_any_report_and_none_where_estimates_hold():
    estimator = TokenEstimator()
    assert estimator.upper("acme", "m", 400) == 150
    for _ in range(1000):
        estimator.learn("m", 400, 100, "acme")
    assert estimator.upper("acme", "m", 400) == 100


@pytest.mark.parametrize(("spread", "share"), [(0.05, 0.06), (0.2, 0.1)])
def test_few_requests_need_more_than_the_upper_estimate(spread, share):
    chance = random.Random(4)
    estimator = TokenEstimator()
    above = 0
    for number in range(4000):
        tokens = max(1, round(chance.lognormvariate(6, 1)))
        size = max(1, round(tokens * chance.lognormvariate(math.log(3.5), spread)))
        if number >= 1000:
            above += tokens > estimator.upper("acme", "m", size)
        estimator.learn("m", size, tokens, "acme")
    assert above / 3000 == pytest.approx(share, abs=0.02)


def test_pairs_are_bounded_and_the_least_recently_reported_go_first():
    estimator = TokenEstimator(max_pairs=3)
    for tenant in ("a", "b", "a", "c"):
        for _ in range(ENOUGH_REPORTS):
            estimator.learn("m", 100, {"a": 100, "b": 50, "c": 50}[tenant], tenant)
    assert len(estimator) == 3
    assert estimator.estimate("m", 100, "a") == 100


def with_image(url: str, text: str = "What is it?") -> bytes:
    part = {"type": "image_url", "image_url": {"url": url}}
    content = [{"type": "text", "text": text}, part, part]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()


@pytest.mark.parametrize("encoded", [0, 4, 100_000])
def test_an_image_in_the_body_counts_as_a_flat_number_of_bytes(encoded):
    data = "A" * encoded
    body = with_image(f"data:image/png;base64,{data}")
    rest = len(body) - 2 * encoded
    assert prompt_bytes(body) == rest + 2 * IMAGE_BYTES
    assert prompt_bytes(body.replace(b"image/png", b"image\\/png")) == rest + 2 + 2 * IMAGE_BYTES
    assert prompt_bytes(body.replace(b'"url": ', b'"url":')) == rest - 2 + 2 * IMAGE_BYTES


@pytest.mark.parametrize(
    "text",
    [
        "data:image/png;base64," + "A" * 1000,
        '"url": "data:image/png;base64,' + "A" * 1000 + '"',
        ";base64,",
        "plain",
    ],
)
def test_text_that_looks_like_an_image_counts_in_full(text):
    body = with_image("https://example.com/a.png", text)
    assert prompt_bytes(body) == len(body)


@pytest.mark.parametrize("url", ["data:application/pdf;base64,AAAA", "https://example.com/a.png", "data:,x"])
def test_what_is_no_image_counts_in_full(url):
    body = with_image(url)
    assert prompt_bytes(body) == len(body)


@given(st.binary(max_size=200).map(lambda junk: junk + b'"url":"data:image/png;base64,' + junk))
def test_a_body_of_any_bytes_has_a_size(body):
    assert prompt_bytes(body) > 0
