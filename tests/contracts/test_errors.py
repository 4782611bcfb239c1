"""The error tree: stable codes, HTTP statuses that fit, and instances that may say more."""

import pytest

from contracts import errors
from contracts.errors import TollkeeperError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TollkeeperError)]


def test_every_code_names_one_error():
    # An error may be a narrower case of another, under its code.
    codes = [kind.code for kind in KINDS if "code" in vars(kind)]
    assert sorted(codes) == sorted(set(codes))
    assert all(kind.__doc__ for kind in KINDS)
    assert "code" in errors.BudgetExhausted.__dict__


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_the_callers_or_ours(kind):
    assert 400 <= kind.status < 600
    if kind.retryable:
        assert kind.status == 429 or kind.status >= 500
    assert (kind.status >= 500) == (kind.kind in ("server_error", "api_error"))


def test_the_codes_clients_act_on_do_not_change():
    stable: dict[type[TollkeeperError], tuple[int, str, bool]] = {
        errors.AuthenticationFailed: (401, "invalid_api_key", False),
        errors.UnknownModel: (404, "model_not_found", False),
        errors.LimitExceeded: (429, "rate_limit_exceeded", True),
        errors.BudgetExhausted: (429, "insufficient_quota", False),
        errors.JournalFull: (503, "journal_full", True),
    }
    assert {kind: (kind.status, kind.code, kind.retryable) for kind in stable} == stable


def test_an_instance_may_carry_its_own_code_field_and_wait():
    error = errors.UpstreamError("busy", param="model", code="upstream_rate_limited", retry_after_seconds=1.5)
    assert (error.error_code, error.param, error.retry_after_seconds) == ("upstream_rate_limited", "model", 1.5)
    assert (str(error), error.message) == ("busy", "busy")
    assert errors.UpstreamError("gone").error_code == "upstream_error"
