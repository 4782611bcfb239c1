"""Evaluate a route's examples on labelled prompts."""

from collections.abc import Sequence
from typing import Final

import msgspec

from backends.embedder.base import Embedder
from contracts.serving.semantic import Complexity, SemanticReading, SemanticSpec
from gateway.routing.semantic.learning import READ_TOKENS, learn
from gateway.routing.semantic.reports import TrainingReport
from gateway.routing.semantic.tally import Tally

_OPERATOR: Final = ""  # the owner of these prompts: no tenant


class LabelledPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A prompt and its expected classification. Missing `intent`: unspecified; null: none of the intents."""

    text: str
    intent: str | None | msgspec.UnsetType = msgspec.UNSET
    complexity: Complexity | None = None


class Evaluation(msgspec.Struct, frozen=True):
    """Accuracy of a semantic route on labelled prompts.

    `intents` is `None` if no prompt states an intent; `complexity` is `None` if no prompt states a complexity.
    """

    examples: TrainingReport
    intents: Tally | None
    complexity: Tally | None
    readings: list[SemanticReading]  # in the order of the prompts


async def evaluate(spec: SemanticSpec, prompts: Sequence[LabelledPrompt], embedder: Embedder) -> Evaluation:
    """Train on the route's examples, classify the prompts and compare. Raises EmbedderUnavailable."""
    classifiers = await learn(spec, embedder)
    readings: list[SemanticReading] = []
    for prompt in prompts:
        embedding = await embedder.embed(prompt.text, _OPERATOR, READ_TOKENS)
        readings.append(classifiers.read(prompt.text, embedding))
    intents: list[tuple[str | None, str | None]] = []
    complexity: list[tuple[str | None, str | None]] = []
    for prompt, reading in zip(prompts, readings, strict=True):
        if spec.intents and not isinstance(prompt.intent, msgspec.UnsetType):
            intents.append((prompt.intent, reading.intent))
        if spec.complexity is not None and prompt.complexity is not None:
            complexity.append((prompt.complexity, reading.complexity))
    return Evaluation(
        classifiers.report,
        Tally.of(intents) if intents else None,
        Tally.of(complexity) if complexity else None,
        readings,
    )
