"""Detects names that occur twice in a JSON object: parsers differ in which of the two values they use."""

import json
from decimal import Decimal
from typing import Any


def has_repeated_names(text: bytes | str) -> bool:
    """Return whether an object of a JSON text, at any depth, has a name twice, or the text is not valid JSON."""
    try:
        json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return True
    return False


def load_once(text: str, parse_float: type[float] | type[Decimal] = float) -> Any:
    """Parse a JSON text. Raises ValueError if an object has a name twice, or if the text is not valid JSON."""
    return json.loads(text, parse_float=parse_float, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found
