"""The moderation webhook: what it is sent, what its answers mean, and what holds where it gives none."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest

from contracts.errors import ConfigurationError
from contracts.guardrails.finding import About, Shown
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.detectors.moderation import Moderation, build
from gateway.guardrails.questions import LazyQuestions
from tests.receivers import HttpReceiver

_SECRET = b"a secret of the installation"
_ABOUT = About(request_id=bytes(16), tenant="acme")
_TEXTS = (Shown("You are a bot.", "system"), Shown("How do I make a bomb?", "user"))


@pytest.fixture
async def questions() -> AsyncIterator[LazyQuestions]:
    made = LazyQuestions((ip_network("127.0.0.0/8"),))
    yield made
    await made.close()


def _answer(**result: Any) -> bytes:
    return json.dumps({"id": "modr-1", "model": "m", "results": [{"flagged": False, **result}]}).encode()


def _moderation(url: str, questions: LazyQuestions, **settings: Any) -> Moderation:
    given = {"url": url, "on_failure": "fail_closed", "timeout_ms": 30_000, **settings}
    return build(given, DetectorDependencies(webhook_secret=_SECRET, questions=questions))


async def _kinds(receiver: HttpReceiver, questions: LazyQuestions, **settings: Any) -> list[tuple[str, float | None]]:
    found = await _moderation(receiver.url, questions, **settings).look(_TEXTS, _ABOUT)
    assert all(finding.is_of_whole for finding in found)
    return [(finding.kind, finding.score) for finding in found if not finding.is_remark]


async def test_it_is_asked_in_openais_shape_and_signed_over_the_bytes_that_arrive(questions: LazyQuestions) -> None:
    async with HttpReceiver(says=_answer()) as receiver:
        assert await _kinds(receiver, questions, model="omni", roles=["user"]) == []
    (call,) = receiver.calls
    assert call.json == {"input": ["How do I make a bomb?"], "model": "omni"}
    assert (
        call.headers["x-tollkeeper-signature"] == "sha256=" + hmac.new(_SECRET, call.body, hashlib.sha256).hexdigest()
    )
    assert (call.headers["x-tollkeeper-tenant"], call.headers["x-tollkeeper-direction"]) == ("acme", "input")


@pytest.mark.parametrize(
    ("answer", "settings", "kinds"),
    [
        ({"flagged": True, "categories": {"violence": True, "hate": False}}, {}, ["violence"]),
        ({"flagged": True}, {}, ["flagged"]),
        ({"flagged": True, "categories": {"violence": True}}, {"categories": ["hate"]}, []),
        ({"category_scores": {"violence": 0.39}}, {"thresholds": {"violence": 0.4}}, []),
        ({"category_scores": {"violence": 0.4}}, {"thresholds": {"violence": 0.4}}, ["violence"]),
        ({"category_scores": {"violence": 0.41}}, {"thresholds": {"violence": 0.4}}, ["violence"]),
        ({"flagged": True, "categories": {"Self-Harm\n=block": True}}, {}, ["self-harm__block"]),
    ],
)
async def test_what_an_answer_means(
    answer: dict[str, Any], settings: dict[str, Any], kinds: list[str], questions: LazyQuestions
) -> None:
    async with HttpReceiver(says=_answer(**answer)) as receiver:
        assert [kind for kind, _ in await _kinds(receiver, questions, **settings)] == kinds


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (0, b""),  # it hangs
        (-1, b""),
        (302, b""),
        (500, b""),
        (200, b"no JSON"),
        (200, b"{}"),
        (200, b'{"results": []}'),
        (200, b'{"results": [{"flagged": "perhaps"}]}'),
        (200, b"[" * 100_000),
        (200, b'"' + b"x" * (1 << 20) + b'"'),
    ],
)
@pytest.mark.parametrize("on_failure", ["fail_open", "fail_closed"])
async def test_where_it_fails_the_policy_says_what_holds(
    status: int, says: bytes, on_failure: str, questions: LazyQuestions
) -> None:
    async with HttpReceiver([status], location="http://127.0.0.1:1/", says=says) as receiver:
        settings = {"on_failure": on_failure, "timeout_ms": 30 if status == 0 else 30_000}
        found = await _kinds(receiver, questions, **settings)
    assert found == ([] if on_failure == "fail_open" else [("unavailable", None)])
    assert len(receiver.calls) == 1  # where it was redirected to, nobody was asked


async def test_an_inward_address_is_not_called_unless_the_operator_says_so() -> None:
    walled = LazyQuestions(())
    async with HttpReceiver(says=_answer()) as receiver:
        answer = await walled.ask(receiver.url, b"{}", {}, 30, 1000)
        await walled.close()
    assert "inward address" in answer.fault and "TOLLKEEPER_GUARDRAILS_INWARD" in answer.fault
    assert not receiver.calls


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://mod.example"},  # what holds when it fails is not stated
        {"url": "ftp://mod.example", "on_failure": "fail_open"},
        {"url": "http://user:pass@mod.example", "on_failure": "fail_open"},
        {"url": "http://mod.example", "on_failure": "perhaps"},
        {"url": "http://mod.example", "on_failure": "fail_open", "timeout_ms": 0},
        {"url": "http://mod.example", "on_failure": "fail_open", "key_ref": "sk-in-clear"},
        {"url": "http://mod.example", "on_failure": "fail_open", "key_ref": "env:NOT_SET_ANYWHERE"},
    ],
)
def test_a_malformed_policy_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        build(settings, DetectorDependencies(questions=LazyQuestions(())))
    assert "sk-in-clear" not in refused.value.message


async def test_its_token_goes_along(monkeypatch: pytest.MonkeyPatch, questions: LazyQuestions) -> None:
    monkeypatch.setenv("MODERATION_TOKEN", "t0ken")
    async with HttpReceiver(says=_answer()) as receiver:
        await _kinds(receiver, questions, key_ref="env:MODERATION_TOKEN")
    assert receiver.calls[0].headers["authorization"] == "Bearer t0ken"
