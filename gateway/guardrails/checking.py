"""Null dependencies for checking a policy without serving requests."""

from collections.abc import Mapping
from typing import Final

from backends.channels.question import HttpAnswer
from backends.embedder.base import MOST_TOKENS, Embedding
from backends.secrets.credential_references import ReferenceRules
from contracts.errors import EmbedderUnavailable
from gateway.guardrails.detector_dependencies import DetectorDependencies

_WHY: Final = "policies are checked here; requests are served by gateways"


class NoQuestions:
    """Sends no questions."""

    async def ask(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float, most_bytes: int
    ) -> HttpAnswer:
        """Return a message that no question was sent."""
        return HttpAnswer(fault=_WHY)


class NoEmbedder:
    """Embeds nothing."""

    fault: str = _WHY
    identity: str = ""

    async def embed(
        self, text: str, owner: str, most_tokens: int = MOST_TOKENS, within_seconds: float | None = None
    ) -> Embedding:
        """Raise EmbedderUnavailable."""
        raise EmbedderUnavailable(_WHY)


def dependencies_of_checks(rules: ReferenceRules | None = None) -> DetectorDependencies:
    """Return dependencies with which every detector can be built. `rules` restrict references to credentials."""
    return DetectorDependencies(questions=NoQuestions(), embedder=NoEmbedder(), rules=rules, only_checks=True)
