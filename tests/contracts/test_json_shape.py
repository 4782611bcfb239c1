"""Which JSON values keep a schema: every keyword below, at and above its bound, and schemas made to cost much."""

import time

import pytest

from contracts.json_shape import misfit

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
