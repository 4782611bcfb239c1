"""Semantic classes of a route: intents from examples, and simple or complex prompts."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from contracts.errors import ConfigurationError

Complexity = Literal["simple", "complex"]
ReadingState = Literal["read", "abstained", "no_text", "loading", "late", "unavailable"]

MAX_EXAMPLES: Final = 2000  # per route in total: each is embedded whenever they change
MAX_EXAMPLE_CHARACTERS: Final = 4000
LEAST_EXAMPLES: Final = 2  # per intent: one is left out to test whether the others find it
LEAST_COMPLEXITY_EXAMPLES: Final = 4

_OBSTACLES: Final[Mapping[str, str]] = {"loading": "learning", "late": "late", "unavailable": "unavailable"}

Example = Annotated[str, Meta(min_length=1, max_length=MAX_EXAMPLE_CHARACTERS)]


class IntentSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One topic of prompts, learned from examples.

    `threshold` is the minimum score, 0 to 1, for this intent; `None`: calibrated from the examples.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    utterances: tuple[Example, ...] = ()
    description: Annotated[str, Meta(max_length=MAX_EXAMPLE_CHARACTERS)] = ""
    threshold: float | None = None

    @property
    def examples(self) -> tuple[str, ...]:
        """Return everything it is learned from: the utterances, and the description if there is one."""
        return (*self.utterances, self.description) if self.description else self.utterances


class ComplexitySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Prompts that a small model can answer, and prompts that need a large one; none: those that come with Tollkeeper.

    `threshold` is the minimum probability, 0 to 1, at which a prompt counts as complex; `None`: calibrated from the
    examples.
    """

    simple: tuple[Example, ...] = ()
    complex: tuple[Example, ...] = ()
    threshold: float | None = None


class SemanticSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """How a route classifies a prompt. `others` are examples of none of its intents."""

    intents: tuple[IntentSpec, ...] = ()
    others: tuple[Example, ...] = ()
    complexity: ComplexitySpec | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the intents' names, in order."""
        return tuple(intent.name for intent in self.intents)


class SemanticReading(msgspec.Struct, frozen=True):
    """A prompt's classification. `None`: none; `state` says why.

    Scores are 0 to 1: the best intent's, even if below its threshold, and the probability of being complex.
    """

    state: ReadingState
    intent: str | None = None
    score: float | None = None
    complexity: Complexity | None = None
    complexity_score: float | None = None

    @property
    def obstacle(self) -> str:
        """Return why the route could not classify the prompt, as shown in a response header; empty if it could."""
        return _OBSTACLES.get(self.state, "")

    def facts(self) -> dict[str, object]:
        """Return what is known, for a record, without any part of the prompt."""
        found = {"state": self.state, "intent": self.intent, "score": self.score, "complexity": self.complexity}
        found["complexity_score"] = self.complexity_score
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in found.items()
            if value is not None
        }


def semantic_spec(given: Mapping[str, object] | None) -> SemanticSpec | None:
    """Build the specification from plain data; `None` if there is none. Raises ConfigurationError, naming the field."""
    if not given:
        return None
    try:
        spec = msgspec.convert(given, SemanticSpec, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"semantic: {error}") from error
    _check(spec)
    return spec


def _check(spec: SemanticSpec) -> None:
    if not spec.intents and spec.complexity is None:
        raise ConfigurationError("semantic has neither intents nor complexity; add one of them, or leave it out")
    told_by: dict[str, str] = {}
    for intent in spec.intents:
        if spec.names.count(intent.name) > 1:
            raise ConfigurationError(f"semantic has two intents named {intent.name!r}; names must be unique")
        if len(intent.examples) < LEAST_EXAMPLES:
            raise ConfigurationError(
                f"intent {intent.name!r} has {len(intent.examples)} examples, its description counted; "
                f"it needs at least {LEAST_EXAMPLES}"
            )
        _check_threshold(f"intent {intent.name!r}", intent.threshold)
        for example in intent.examples:
            told_by.setdefault(example, intent.name)
            if told_by[example] != intent.name:
                raise ConfigurationError(
                    f"intents {told_by[example]!r} and {intent.name!r} share an example; remove it from one of them"
                )
    if any(example in told_by for example in spec.others):
        raise ConfigurationError("semantic.others holds an example of an intent; an example can be only one of the two")
    count = len(told_by) + len(spec.others)
    if spec.complexity is not None:
        count += len(spec.complexity.simple) + len(spec.complexity.complex)
        _check_complexity(spec.complexity)
    if count > MAX_EXAMPLES:
        raise ConfigurationError(f"semantic has {count} examples; the maximum of a route is {MAX_EXAMPLES}")


def _check_threshold(whose: str, threshold: float | None) -> None:
    if threshold is not None and not 0 <= threshold <= 1:
        raise ConfigurationError(
            f"{whose} has the threshold {threshold}; it must be 0 to 1, or be left out to be calibrated"
        )


def _check_complexity(spec: ComplexitySpec) -> None:
    _check_threshold("complexity", spec.threshold)
    counts = {"simple": len(spec.simple), "complex": len(spec.complex)}
    if not any(counts.values()):
        return
    for name, count in counts.items():
        if count < LEAST_COMPLEXITY_EXAMPLES:
            raise ConfigurationError(
                f"complexity has {count} {name} examples; it needs at least {LEAST_COMPLEXITY_EXAMPLES} of both kinds, "
                "or none of either"
            )
    both = set(spec.simple) & set(spec.complex)
    if both:
        raise ConfigurationError("complexity has an example that is both simple and complex; it can be only one")
