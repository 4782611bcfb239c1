"""Which JSON values keep a schema: every keyword below, at and above its bound, and schemas made to cost much."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.json_shape import misfit

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, 1),
        (True, 1),
        ("not a schema", 1),
        (PERSON, {"name": "Al"}),
        (PERSON, {"name": "Al", "age": 0}),
        ({"type": "integer"}, 2.0),
        ({"type": ["string", "null"]}, None),
        ({"type": "a type of tomorrow"}, 1),
        ({"enum": [1, "a", [True]]}, [True]),
        ({"const": {"a": 1}}, {"a": 1.0}),
        ({"exclusiveMinimum": 1, "maximum": 2}, 2),
        ({"maxItems": 2, "items": {"type": "number"}}, [1, 2.5]),
        ({"prefixItems": [{"type": "string"}], "items": {"type": "number"}}, ["a", 1]),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, 1),
        ({"oneOf": [{"minimum": 5}, {"maximum": 1}]}, 6),
        ({"not": {"type": "string"}}, 1),
        ({"not": {"pattern": "^a"}}, "a"),
        ({"oneOf": [{"pattern": "^a"}, {"pattern": "^b"}]}, "a"),
        ({"type": "string", "pattern": "^(a+)+$"}, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"),
        ({"$ref": "#/$defs/missing"}, 1),
        ({"$ref": "https://example.org/schema"}, 1),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x1": 1}),
        ({"minLength": "two"}, "a"),
    ],
)
def test_what_keeps_a_schema_or_cannot_be_told_fits(schema, value):
    assert misfit(schema, value) == ""


@pytest.mark.parametrize(
    ("schema", "value", "where"),
    [
        (False, 1, "$: nothing is allowed here"),
        (PERSON, [], "$: type"),
        (PERSON, {}, "$: required: 'name'"),
        (PERSON, {"name": "A"}, "$.name: minLength: 1 of 2"),
        (PERSON, {"name": "Al", "age": -1}, "$.age: minimum"),
        (PERSON, {"name": "Al", "age": 1.5}, "$.age: type"),
        (PERSON, {"name": "Al", "age": True}, "$.age: type"),
        (PERSON, {"name": "Al", "id": 1}, "$: additionalProperties: 'id'"),
        ({"enum": [1, 2]}, True, "$: enum"),
        ({"const": 0}, False, "$: const"),
        ({"exclusiveMinimum": 1}, 1, "$: exclusiveMinimum"),
        ({"exclusiveMaximum": 1}, 1, "$: exclusiveMaximum"),
        ({"maximum": 2}, 2.01, "$: maximum"),
        ({"maxItems": 1}, [1, 2], "$: maxItems: 2 of 1"),
        ({"minItems": 1}, [], "$: minItems"),
        ({"items": {"type": "string"}}, ["a", 1], "$[1]: type"),
        ({"items": False}, [1], "$[0]: nothing"),
        ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, 2, "$: anyOf"),
        ({"oneOf": [{"minimum": 5}, {"minimum": 1}]}, 0, "$: oneOf"),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 3, "$: maximum"),
        ({"minProperties": 1}, {}, "$: minProperties"),
    ],
)
def test_what_misses_a_schema_is_said_by_place_and_keyword(schema, value, where):
    assert misfit(schema, value).startswith(where)


def test_a_schema_may_refer_to_itself():
    tree = {
        "$defs": {"a/b": {"type": "object", "properties": {"child": {"$ref": "#/$defs/a~1b"}, "n": {"minimum": 0}}}},
        "$ref": "#/$defs/a~1b",
    }
    assert misfit(tree, {"child": {"child": {"n": 1}}}) == ""
    assert misfit(tree, {"child": {"child": {"n": -1}}}) == "$.child.child.n: minimum: 0 is not kept"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"oneOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"not": {"not": {"$ref": "#"}}},
    ],
)
def test_a_schema_without_end_costs_little_and_refuses_nothing(schema):
    began = time.process_time()
    assert misfit(schema, {"a": 1}) == ""
    assert time.process_time() - began < 1


LONG = list(range(100_000))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"enum": LONG}}, [-1] * 100),
        ({"items": {"const": LONG}}, [LONG] * 100),
        ({"items": {"enum": [LONG[:500]] * 200}}, [[*LONG[:499], -1]] * 100),
        ({"items": {"required": list(map(str, LONG))}}, [dict.fromkeys(map(str, LONG))] * 100),
        ({"items": {"type": ["string"] * 100_000}}, [1] * 100),
        ({"items": {"prefixItems": LONG}}, [[1]] * 100),
        ({"items": {"anyOf": [False] * 100_000}}, [1] * 100),
        ({"items": {"allOf": [True] * 100_000}}, [1] * 100),
        ({"items": {"$ref": "#/" + "a/" * 500_000}}, [1] * 100),
    ],
    ids=["enum", "const", "enum_of_lists", "required", "type", "prefixItems", "anyOf", "allOf", "$ref"],
)
def test_a_long_list_in_a_schema_costs_no_more_than_the_bound(schema, value):
    began = time.process_time()
    assert misfit(schema, value) == ""
    assert time.process_time() - began < 0.25


def test_a_list_within_the_bound_is_still_looked_at():
    assert misfit({"enum": LONG[:19_000]}, -1) == "$: enum: it is none of the values"
    assert misfit({"enum": LONG}, -1) == ""


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"required": [{}, [], 1, None]}, {}),
        ({"maximum": 10**5000}, 10**5001),
        ({"$ref": "#/allOf/" + "9" * 5000, "allOf": [True]}, 1),
        ({"const": nested(5000)}, nested(5000)),
        ({"enum": [nested(5000)]}, nested(5000)),
        ({"enum": {}}, 1),
        ({"properties": [], "prefixItems": 1, "items": [1], "minLength": [], "type": {}}, {"a": 1}),
    ],
    ids=["names", "number", "place", "deep", "deep_among", "no_values", "kinds"],
)
def test_what_a_schema_should_not_say_is_no_failure(schema, value):
    assert misfit(schema, value) == ""


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["#", "#/0", "array"])
keywords = st.sampled_from(
    "type enum const required properties items prefixItems allOf anyOf $ref minimum maxLength minItems".split()
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=3),
    max_leaves=10,
)


@given(values, values)
def test_whatever_a_schema_says_it_is_kept_or_missed(schema, value):
    assert isinstance(misfit(schema, value), str)
