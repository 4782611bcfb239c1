"""Builds grammars that force a tool call in the model's call format."""

import json
from collections.abc import Mapping
from typing import Any, Final

from backends.engine.parsers.hermes import CLOSE, OPEN
from contracts.engine.wire import Grammar
from contracts.errors import InvalidRequest

REQUIRED: Final = "required"  # value of `Submit.tool_choice`
NAMED: Final = "function:"


def hermes_grammar(tools: Mapping[str, Mapping[str, Any]]) -> Grammar:
    """Return the grammar of one call of any of these tools, within its tags."""
    # As for other JSON schemas: with free white space a model could indent forever.
    schema = json.dumps({**_schema(tools, "arguments"), "x-guidance": {"whitespace_flexible": False}})
    frame = f'start: "{OPEN}\\n" call "\\n{CLOSE}"'
    return Grammar(kind="lark", text=f"{frame}\ncall: %json {schema}\n")


def llama3_grammar(tools: Mapping[str, Mapping[str, Any]]) -> Grammar:
    """Return the grammar of an answer that is one call of any of these tools."""
    return Grammar(kind="json_schema", text=json.dumps(_schema(tools, "parameters")))


def chosen_tools(tools: Mapping[str, dict[str, Any]], choice: str) -> dict[str, dict[str, Any]]:
    """Return the tools that may be called: all, or the named one. Raises InvalidRequest."""
    if not tools:
        raise InvalidRequest("tool_choice asks for a call, and there are no tools", param="tool_choice")
    if choice == REQUIRED:
        chosen = dict(tools)
    elif (name := choice.removeprefix(NAMED)) in tools and choice.startswith(NAMED):
        chosen = {name: tools[name]}
    else:
        raise InvalidRequest(f"tool_choice {choice[:64]!r} names none of the tools", param="tool_choice")
    for name, schema in chosen.items():
        # A reference would no longer resolve within the call's schema.
        if "$ref" in json.dumps(schema):
            raise InvalidRequest(
                f"a call of {name[:64]!r} cannot be forced: its parameters use $ref; write them out, or give "
                "tool_choice 'auto'",
                param="tool_choice",
            )
    return chosen


def _schema(tools: Mapping[str, Mapping[str, Any]], arguments: str) -> dict[str, Any]:
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, arguments: dict(schema)},
            "required": ["name", arguments],
            "additionalProperties": False,
        }
        for name, schema in tools.items()
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}
