"""What may be said of how a route reads prompts, and how what is wrong is named."""

import msgspec
import pytest

from contracts.errors import ConfigurationError
from contracts.serving.semantic import MAX_EXAMPLES, SemanticReading, semantic_spec


def intents(**more):
    return {
        "intents": [
            {"name": "code", "utterances": ["fix this bug", "write a loop"], **more},
            {"name": "billing", "utterances": ["where is my invoice", "I was charged twice"]},
        ]
    }


@pytest.mark.parametrize("threshold", [0, 0.0, 0.5, 1])
def test_thresholds_from_0_to_1_are_taken(threshold):
    spec = semantic_spec(intents(threshold=threshold))
    assert spec is not None and spec.intents[0].threshold == threshold


@pytest.mark.parametrize("threshold", [-0.001, 1.001, float("nan"), "high"])
@pytest.mark.parametrize("part", ["intent", "complexity"])
def test_thresholds_outside_0_to_1_are_refused_by_name(part, threshold):
    data = intents(threshold=threshold) if part == "intent" else {"complexity": {"threshold": threshold}}
    with pytest.raises(ConfigurationError, match="threshold"):
        semantic_spec(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"intents": []}, "neither intents nor complexity"),
        ({"intents": [{"name": "a", "utterances": ["x"]}]}, "'a' has 1 examples"),
        ({"intents": [{"name": "a", "utterances": ["x", "y"]}] * 2}, "two intents named 'a'"),
        (
            {"intents": [{"name": "a", "utterances": ["x", "y"]}, {"name": "b", "utterances": ["y", "z"]}]},
            "'a' and 'b' share an example",
        ),
        ({"intents": [{"name": "a", "utterances": ["x", "y"]}], "others": ["y"]}, "others holds an example"),
        ({"complexity": {"simple": ["a"] * 4, "complex": ["b"] * 3}}, "3 complex examples; it needs at least 4"),
        ({"complexity": {"simple": ["a"] * 4, "complex": ["a"] * 4}}, "both simple and complex"),
        ({"intents": [{"name": "a", "utterance": ["x"]}]}, "unknown field `utterance`"),
        ({"intents": [{"name": "", "utterances": ["x", "y"]}]}, "name"),
        ({"intents": [{"name": "a", "utterances": ["x", ""]}]}, "utterances"),
    ],
)
def test_what_cannot_be_learned_from_is_named(data, message):
    with pytest.raises(ConfigurationError, match=message):
        semantic_spec(data)


def test_a_description_is_an_example():
    spec = semantic_spec({"intents": [{"name": "a", "utterances": ["x"], "description": "about x"}]})
    assert spec is not None and spec.intents[0].examples == ("x", "about x")


def test_examples_are_bounded():
    most = {"intents": [{"name": "a", "utterances": [f"x{number}" for number in range(MAX_EXAMPLES)]}]}
    assert semantic_spec(most) is not None
    more = most | {"others": ["y"]}
    with pytest.raises(
        ConfigurationError, match=f"has {MAX_EXAMPLES + 1} examples; the maximum of a route is {MAX_EXAMPLES}"
    ):
        semantic_spec(more)


def test_what_is_written_is_read_as_the_same():
    data = intents(threshold=0.4, description="programs") | {"others": ["hello"], "complexity": {"threshold": 0.5}}
    spec = semantic_spec(data)
    assert spec is not None and semantic_spec(msgspec.to_builtins(spec)) == spec
    assert semantic_spec(None) is None


def test_a_reading_tells_what_it_knows_and_nothing_else():
    assert SemanticReading("late").facts() == {"state": "late"}
    reading = SemanticReading("abstained", score=0.123456, complexity="simple", complexity_score=0.25)
    assert reading.facts() == {
        "state": "abstained",
        "score": 0.1235,
        "complexity": "simple",
        "complexity_score": 0.25,
    }
