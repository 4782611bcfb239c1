"""The moderation webhook: an external server inspects the texts, in the format of OpenAI's moderation endpoint.

Requests to it are signed like other webhooks, and have a time limit. If it does not answer, the policy decides:
`fail_closed` treats the text as if something was found, `fail_open` as if nothing was.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from backends.channels.question import Questions
from backends.secrets.credential_references import read_reference
from contracts.errors import ConfigurationError
from contracts.guardrails.finding import About, Finding, Shown
from contracts.rules.webhook_signature import SIGNATURE_HEADER, signature_of
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.settings import read_settings

_log = logging.getLogger(__name__)

_MOST_ANSWER_BYTES: Final = 1 << 20
_UNAVAILABLE: Final = "unavailable"
_UNKNOWN: Final = "flagged"  # where the answer names no category
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9/_.-]")
_MOST_NAME: Final = 60
_SENDABLE: Final = re.compile(r"[\x21-\x7e]{1,4096}")

Milliseconds = Annotated[int, Meta(ge=10, le=30_000)]
Score = Annotated[float, Meta(ge=0, le=1)]


class ModerationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings. `on_failure` has no default: the policy must state it. `categories`: those that count; empty means all.

    `thresholds`: minimum scores by category, which replace the server's own decision. `model` is sent to the server.
    `key_ref` ("env:NAME" or "file:PATH") names the bearer token.
    """

    url: Annotated[str, Meta(min_length=8, max_length=500)]
    on_failure: Literal["fail_open", "fail_closed"]
    timeout_ms: Milliseconds = 2000
    categories: frozenset[str] = frozenset()
    thresholds: dict[str, Score] = {}
    roles: frozenset[str] = frozenset()  # whose texts are sent; empty: all
    model: Annotated[str, Meta(max_length=200)] = ""
    key_ref: Annotated[str, Meta(max_length=300)] = ""


class _Result(msgspec.Struct, frozen=True):
    flagged: bool
    categories: dict[str, bool] = {}
    category_scores: dict[str, float] = {}


class _Answer(msgspec.Struct, frozen=True):
    results: list[_Result]


class Moderation:
    """Sends all texts of a request to the server in one call."""

    def __init__(self, settings: ModerationSettings, questions: Questions, secret: bytes, bearer: str) -> None:
        self._settings = settings
        self._questions = questions
        self._secret = secret
        self._headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
        self.failures = 0

    async def look(self, shown: Sequence[Shown], about: About) -> Sequence[Finding]:
        """Return one finding about the whole text for each category that was found. If the server does not answer,
        return what the policy's `on_failure` states.
        """
        settings = self._settings
        texts = [each.text for each in shown if each.text and (not settings.roles or each.role in settings.roles)]
        if not texts:
            return ()
        asked: dict[str, object] = {"input": texts}
        if settings.model:
            asked["model"] = settings.model
        body = msgspec.json.encode(asked)
        headers = {
            **self._headers,
            SIGNATURE_HEADER: signature_of(body, self._secret),
            "x-tollkeeper-request-id": about.request_id.hex(),
            "x-tollkeeper-tenant": about.tenant,
            "x-tollkeeper-direction": about.direction,
        }
        answer = await self._questions.ask(settings.url, body, headers, settings.timeout_ms / 1000, _MOST_ANSWER_BYTES)
        if answer.fault:
            return self._failed(answer.fault)
        try:
            results = msgspec.json.decode(answer.body, type=_Answer).results
        except (msgspec.MsgspecError, RecursionError):
            return self._failed("answered, but not as OpenAI's moderation endpoint does")
        if not results:
            return self._failed("answered without a result")
        return self._found(results)

    def _found(self, results: Sequence[_Result]) -> list[Finding]:
        found = dict[str, float | None]()
        for result in results:
            for name in self._told(result):
                score = result.category_scores.get(name)
                known = found.get(name)
                found[name] = score if known is None or (score is not None and score > known) else known
        return [Finding(0, 0, _named(name), _bounded(found[name])) for name in sorted(found)]

    def _told(self, result: _Result) -> set[str]:
        """Return the categories that a result names, by its own word or by thresholds, among those asked for."""
        settings = self._settings
        told = {name for name, is_so in result.categories.items() if is_so and name not in settings.thresholds}
        told |= {name for name, least in settings.thresholds.items() if result.category_scores.get(name, -1) >= least}
        if settings.categories:
            return told & settings.categories
        return {_UNKNOWN} if result.flagged and not told and not settings.thresholds else told

    def _failed(self, why: str) -> Sequence[Finding]:
        self.failures += 1
        settings = self._settings
        host = urlsplit(settings.url).hostname
        _log.warning("moderation failed", extra={"host": host, "reason": why, "holds": settings.on_failure})
        return (Finding(0, 0, _UNAVAILABLE, is_remark=settings.on_failure == "fail_open"),)


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> Moderation:
    """Build the detector. Raises ConfigurationError on unknown or invalid settings, and if the key cannot be read."""
    known = read_settings(settings, ModerationSettings)
    _check_url(known.url)
    if dependencies.questions is None:
        raise ConfigurationError("moderation: nothing can be asked from here; it runs in a gateway")
    return Moderation(
        known, dependencies.questions, dependencies.webhook_secret, _bearer_at(known.key_ref, dependencies)
    )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or "@" in urlsplit(url).netloc or _SENDABLE.fullmatch(url) is None:
        raise ConfigurationError("moderation: url is an http:// or https:// URL with a host, without user and password")


def _bearer_at(key_ref: str, dependencies: DetectorDependencies) -> str:
    """Read a token; outside a gateway, only check that the reference is one that gateways may read."""
    if not key_ref:
        return ""
    try:
        kind, _, place = key_ref.partition(":")
        if dependencies.only_checks and kind in ("env", "file") and place:
            if dependencies.rules is not None:
                dependencies.rules.check(key_ref)
            return ""
        value = read_reference(key_ref, dependencies.rules)
    except ConfigurationError as error:
        raise ConfigurationError(f"moderation, key_ref: {error.message}") from error
    if _SENDABLE.fullmatch(value) is None:
        raise ConfigurationError("moderation: what key_ref names is empty, or no token that a header carries")
    return value


def _named(category: str) -> str:
    """Format a category for verdicts: it is the server's word, and must not be mistaken for ours."""
    return _NOT_IN_NAMES.sub("_", category.lower())[:_MOST_NAME] or _UNKNOWN


def _bounded(score: float | None) -> float | None:
    return None if score is None or score != score else min(max(score, 0.0), 1.0)
