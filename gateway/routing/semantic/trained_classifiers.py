"""Classifiers trained from a route's examples, and their accuracy."""

from collections.abc import Mapping

import msgspec

from backends.embedder.base import Embedding
from contracts.serving.semantic import SemanticReading, SemanticSpec
from gateway.routing.semantic.complexity import ComplexityClassifier, complexity_examples, fit_complexity
from gateway.routing.semantic.intents import IntentClassifier, everyday_prompts, fit_intents
from gateway.routing.semantic.reports import ComplexityReport, IntentReport, TrainingReport
from gateway.routing.semantic.vectors import array_of


def example_texts(spec: SemanticSpec) -> tuple[str, ...]:
    """Return every distinct text whose vector is needed to learn."""
    texts: dict[str, None] = {}
    if spec.intents:
        texts.update(dict.fromkeys(text for intent in spec.intents for text in intent.examples))
        texts.update(dict.fromkeys((*spec.others, *everyday_prompts())))
    if spec.complexity is not None:
        simple, complex_ = complexity_examples(spec.complexity)
        texts.update(dict.fromkeys((*simple, *complex_)))
    return tuple(texts)


class TrainedClassifiers:
    """The trained classifiers of one route."""

    def __init__(
        self,
        spec: SemanticSpec,
        intents: IntentClassifier | None,
        complexity: ComplexityClassifier | None,
        report: TrainingReport,
    ) -> None:
        self.spec = spec
        self._intents = intents
        self._complexity = complexity
        self.report = report

    @classmethod
    def learn(cls, spec: SemanticSpec, embeddings: Mapping[str, Embedding]) -> "TrainedClassifiers":
        """Train on the `example_texts`. May take seconds with many examples: do not call it on an event loop."""
        rows = array_of(embeddings.values())
        vectors = dict(zip(embeddings, rows, strict=True))
        intents: IntentClassifier | None = None
        told: IntentReport | None = None
        complexity: ComplexityClassifier | None = None
        weighed: ComplexityReport | None = None
        if spec.intents:
            intents, told = fit_intents(spec, vectors)
        if spec.complexity is not None:
            complexity, weighed = fit_complexity(spec.complexity, vectors)
        return cls(spec, intents, complexity, TrainingReport(told, weighed))

    def read(self, text: str, embedding: Embedding) -> SemanticReading:
        """Classify a prompt: takes about 0.2 ms."""
        vectors = array_of((embedding,))
        reading = SemanticReading("read")
        if self._intents is not None:
            ((number, score),) = self._intents.read(vectors)
            name = None if number is None else self.spec.names[number]
            state = "abstained" if name is None else "read"
            reading = msgspec.structs.replace(reading, state=state, intent=name, score=score)
        if self._complexity is not None:
            probability = self._complexity.probability(vectors[0], text)
            is_complex = probability >= self._complexity.threshold
            reading = msgspec.structs.replace(
                reading, complexity="complex" if is_complex else "simple", complexity_score=probability
            )
        return reading
