"""The classifier: finds texts with the same meaning as labelled examples, by embeddings.

A score combines the distance to the centroid of a label's examples and to the three nearest ones. Its threshold is
calibrated on the examples (`gateway/routing/semantic`), as for semantic routes.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from contracts.errors import ConfigurationError
from contracts.guardrails.finding import About, Finding, Shown
from contracts.serving.semantic import SemanticSpec, semantic_spec
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.settings import read_settings
from gateway.routing.semantic.reader import PromptEmbedder, SemanticReader

_NAME: Final = "guardrail"  # of its only lesson
_UNAVAILABLE: Final = "unavailable"
_MOST_TEXTS: Final = 8  # of one request that are read, the last of them: each takes some ten milliseconds


class LabelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A kind of text, learned from examples. `threshold`: the minimum score, 0 to 1; `None`: calibrated from the
    examples.
    """

    name: Annotated[str, Meta(min_length=1, max_length=60, pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    examples: tuple[str, ...]
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None


class ClassifierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings. `labels`: the kinds of text to find. `others`: examples of texts of no kind. `on_failure` has no
    default.
    """

    labels: tuple[LabelSettings, ...]
    on_failure: Literal["fail_open", "fail_closed"]
    others: tuple[str, ...] = ()
    timeout_ms: Annotated[int, Meta(ge=1, le=30_000)] = 200
    roles: frozenset[str] = frozenset({"user", "tool", "document", ""})


class Classifier:
    """Classifies texts. It is trained at its first use. Until it is trained, and without an embedder, it counts as
    failed.
    """

    def __init__(self, settings: ClassifierSettings, spec: SemanticSpec, embedder: PromptEmbedder) -> None:
        self._settings = settings
        self._spec = spec
        self._reader = SemanticReader(embedder, settings.timeout_ms / 1000)

    async def look(self, shown: Sequence[Shown], about: About) -> Sequence[Finding]:
        """Return a finding about the whole text for each matching label."""
        settings, found = self._settings, dict[str, float]()
        read = [each for each in shown if each.text.strip() and each.role in settings.roles]
        read.sort(key=lambda each: each.role != "")  # what nobody says, such as metadata, leaves room for what is said
        for text in [each.text for each in read[-_MOST_TEXTS:]]:
            reading = await self._reader.read_text(_NAME, self._spec, text, about.tenant)
            if reading.state in ("loading", "late", "unavailable"):
                return (Finding(0, 0, _UNAVAILABLE, is_remark=settings.on_failure == "fail_open"),)
            if reading.intent is not None:
                found[reading.intent] = max(found.get(reading.intent, 0.0), reading.score or 0.0)
        return [Finding(0, 0, name, found[name]) for name in sorted(found)]

    async def close(self) -> None:
        """Stop training."""
        await self._reader.close()


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> Classifier:
    """Build the detector. Raises ConfigurationError on unknown or invalid settings, and if the gateway has no
    embedder.
    """
    known = read_settings(settings, ClassifierSettings)
    labels = [
        {"name": label.name, "utterances": label.examples, "threshold": label.threshold} for label in known.labels
    ]
    try:
        spec = semantic_spec({"intents": labels, "others": known.others})
    except ConfigurationError as error:
        raise ConfigurationError(f"classifier: {error.message}") from error
    if spec is None or dependencies.embedder is None:
        raise ConfigurationError("classifier: there is no embedder here; it runs in a gateway")
    return Classifier(known, spec, dependencies.embedder)
