"""Limits the size of output constraints before they are compiled, since compile time may grow with the square of their
size.

A grammar within these limits compiles in less than about half a second; without them it took up to minutes, or ended
the process by a stack overflow (thousands of rules that each start with the next).
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from contracts.engine.wire import Grammar
from contracts.errors import InvalidRequest

MAX_BYTES: Final = 256 << 10
MAX_REGEX_BYTES: Final = 8 << 10  # of all regular expressions of one grammar together
MAX_PROPERTIES: Final = 1000  # of all objects of one schema together
MAX_ALTERNATIVES: Final = 5000
MAX_RULES: Final = 1000
MAX_REPEATS: Final = 1000  # ?, * and + outside of regular expressions

_LARK_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/((?:\\.|[^/\\\n])+)/')
_LARK_RULE: Final = re.compile(r"^\s*[?!]*[\w.\[\]-]+\s*(?:\{[^}\n]*\})?\s*:", re.MULTILINE)
_LARK_JSON: Final = re.compile(r"%json\s*")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "enum", "prefixItems")


def check_size(grammar: Grammar) -> None:
    """Raise InvalidRequest if a grammar is too large to compile; the message names the limit."""
    size = len(grammar.text.encode(errors="surrogatepass"))
    _limit(grammar, size, MAX_BYTES, "bytes")
    match grammar.kind:
        case "regex":
            _limit(grammar, size, MAX_REGEX_BYTES, "bytes")
        case "json_schema":
            _check_schema(grammar, _parsed(grammar.text))
        case "choice":
            choices = _parsed(grammar.text)
            _limit(grammar, len(choices) if isinstance(choices, list) else 0, MAX_ALTERNATIVES, "choices")
        case "lark":
            _check_lark(grammar)


def _check_lark(grammar: Grammar) -> None:
    expressions = sum(len(found.group(1).encode()) for found in _LARK_TOKEN.finditer(grammar.text) if found.group(1))
    _limit(grammar, expressions, MAX_REGEX_BYTES, "bytes of regular expressions")
    decoder = json.JSONDecoder()
    plain = []
    start = 0
    for found in _LARK_JSON.finditer(grammar.text):
        if found.end() < start:
            continue
        try:
            schema, end = decoder.raw_decode(grammar.text, found.end())
        except (ValueError, RecursionError):
            continue  # the compiler reports the fault
        _check_schema(grammar, schema)
        plain.append(grammar.text[start : found.start()])
        start = end
    bare = _LARK_TOKEN.sub("", "".join(plain) + grammar.text[start:])
    _limit(grammar, len(_LARK_RULE.findall(bare)), MAX_RULES, "rules")
    _limit(grammar, bare.count("|") + 1, MAX_ALTERNATIVES, "alternatives")
    _limit(grammar, sum(map(bare.count, "?*+")), MAX_REPEATS, "repetitions (?, * and +)")


def _check_schema(grammar: Grammar, schema: object) -> None:
    properties = alternatives = expressions = definitions = 0
    for one in _objects(schema):
        for name in ("properties", "patternProperties", "dependentSchemas"):
            found = one.get(name)
            if isinstance(found, dict):
                properties += len(found)
                if name == "patternProperties":
                    expressions += sum(len(key.encode(errors="surrogatepass")) for key in found)
        for name in ("$defs", "definitions"):
            found = one.get(name)
            definitions += len(found) if isinstance(found, dict) else 0
        alternatives += sum(len(found) for name in _LISTS if isinstance(found := one.get(name), list))
        pattern = one.get("pattern")
        expressions += len(pattern.encode(errors="surrogatepass")) if isinstance(pattern, str) else 0
    _limit(grammar, properties, MAX_PROPERTIES, "properties")
    _limit(grammar, definitions, MAX_RULES, "definitions")
    _limit(grammar, alternatives, MAX_ALTERNATIVES, "alternatives")
    _limit(grammar, expressions, MAX_REGEX_BYTES, "bytes of regular expressions")


def _objects(schema: object) -> Iterator[dict[str, Any]]:
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # the compiler reports the fault


def _limit(grammar: Grammar, value: int, limit: int, what: str) -> None:
    if value > limit:
        raise InvalidRequest(
            f"the {grammar.kind} has {value} {what}, more than {limit}; make it smaller",
            param="response_format",
            code="invalid_grammar",
        )
