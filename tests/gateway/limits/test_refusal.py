"""What a refused caller is told: which limit, whose, its value, what is used, and when to come back."""

import pytest

from contracts.errors import BudgetExhausted, CountersUnavailable, LimitExceeded
from contracts.rules.limits import BudgetSpec, LimitSpec, Scope
from gateway.limits.counters.base import CounterState, Shortage
from gateway.limits.counters.memory_store import MemoryStore
from gateway.limits.headers import duration
from gateway.limits.refusal import refusal_of

KEY = Scope("acme", "key", "key_7")


def shortage(rule, *, amount, used, asked, wait, subject="key_7", **more):
    return Shortage(MemoryStore().open(rule, subject), asked, CounterState(amount, used, 0, wait), wait, **more)


def test_a_limit_is_named_with_its_level_value_use_and_reset():
    rule = LimitSpec("lim_1", KEY, "tokens", 120_000, "minute")
    error = refusal_of(shortage(rule, amount=120_000, used=119_800, asked=900, wait=3.25, is_held=True))
    assert isinstance(error, LimitExceeded)
    assert (error.status, error.error_code, error.retry_after_seconds) == (429, "rate_limit_exceeded", 3.25)
    assert error.message == (
        "limit 'lim_1' (level key 'key_7') is reached: 119800 of 120000 tokens used in a minute, requested 900 more; "
        "retry after 3.25s (capacity reserved for you)"
    )
    assert error.should_retry is None


@pytest.mark.parametrize(("wait", "should_retry"), [(119.9, None), (120.0, None), (120.1, False), (None, False)])
def test_a_client_is_told_not_to_retry_by_itself_where_the_wait_is_over_two_minutes(wait, should_retry):
    rule = LimitSpec("lim_1", KEY, "requests", 10, "hour")
    assert refusal_of(shortage(rule, amount=10, used=10, asked=1, wait=wait)).should_retry is should_retry


def test_a_budget_says_insufficient_quota_with_exact_dollars():
    rule = BudgetSpec("bud_1", Scope("acme", "tenant"), "pico_usd", 50 * 10**12, "month")
    error = refusal_of(
        shortage(rule, amount=50 * 10**12, used=49_999_999_999_990, asked=10**9, wait=86_400.0, subject="")
    )
    assert isinstance(error, BudgetExhausted)
    assert (error.status, error.error_code, error.should_retry) == (429, "insufficient_quota", False)
    assert "budget 'bud_1' (level tenant)" in error.message
    assert "49.99999999999 of 50 USD used this month, requested 0.001 more" in error.message


def test_a_request_larger_than_the_limit_is_told_that_waiting_does_not_help():
    rule = LimitSpec("lim_1", KEY, "tokens", 100, "minute")
    error = refusal_of(shortage(rule, amount=100, used=0, asked=101, wait=None))
    assert "can never fit" in error.message
    assert (error.retry_after_seconds, error.should_retry) == (None, False)


def test_counters_that_are_away_are_no_fault_of_the_callers():
    rule = BudgetSpec("bud_1", KEY, "pico_usd", 1, "day")
    error = refusal_of(
        shortage(rule, amount=1, used=0, asked=1, wait=1.0, reason="the shared counters are unreachable")
    )
    assert isinstance(error, CountersUnavailable)
    assert (error.status, error.retryable, error.retry_after_seconds) == (503, True, 1.0)
    assert "bud_1" in error.message and "shared counters are unreachable" in error.message


def test_room_that_is_kept_for_others_is_said_to_be():
    rule = LimitSpec("lim_1", KEY, "tokens", 120, "minute")
    message = refusal_of(shortage(rule, amount=120, used=0, asked=61, wait=20.0)).message
    assert "0 of 120 tokens used in a minute, requested 61 more; the rest is reserved for earlier requests" in message


def test_gpu_time_is_told_in_milliseconds_and_a_long_subject_is_cut():
    rule = LimitSpec("lim_g", Scope("acme", "user", "*"), "gpu_ns", 5_000_000, "day")
    message = refusal_of(
        shortage(rule, amount=5_000_000, used=4_500_000, asked=1_000_000, wait=1.0, subject="u" * 300)
    ).message
    assert "4.5 of 5 GPU milliseconds used in a day, requested 1 more" in message
    assert "u" * 81 not in message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, b"0s"),
        (0.0004, b"1ms"),
        (0.12, b"120ms"),
        (0.9999, b"1s"),
        (1.0, b"1s"),
        (1.5, b"1.5s"),
        (59.001, b"59.001s"),
        (360.0, b"6m0s"),
        (3723.25, b"1h2m3.25s"),
        (86400.0, b"24h0m0s"),
    ],
)
def test_resets_are_written_as_openai_writes_them(seconds, text):
    assert duration(seconds) == text


def test_a_gateway_that_counts_alone_names_its_share():
    rule = LimitSpec("lim_1", KEY, "requests", 10, "minute")
    message = refusal_of(shortage(rule, amount=10, used=5, asked=1, wait=60.0, share=5)).message
    assert "5 of 10 requests used in a minute, requested 1 more; this gateway's share is 5 while the shared" in message


def test_what_no_window_ever_allows_is_not_called_used():
    rule = LimitSpec("lim_1", KEY, "tokens", 100, "minute")
    message = refusal_of(shortage(rule, amount=100, used=0, asked=101, wait=None)).message
    assert "limit 'lim_1' (level key 'key_7') allows 100 tokens in a minute; this request needs 101" in message
