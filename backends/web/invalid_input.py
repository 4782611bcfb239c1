"""Translates pydantic's validation errors to messages with field, value, limit and remedy."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from contracts.errors import InvalidRequest, MalformedBody
from contracts.suggestions import did_you_mean

_MAX_SHOWN: Final = 80
_NEVER_SHOWN: Final = frozenset({"key_ref", "address", "password", "id_token", "value"})
_TIME: Final = "write a time with its zone, such as 2027-01-31T00:00:00Z"
_NUMBER: Final = "write a number"
_WHOLE: Final = "write a whole number"
_FIELDS: Final = "write fields with values"
# By pydantic's error type; names in braces are in the error's context.
_WORDS: Final[Mapping[str, str]] = {
    "string_type": "write text, in quotes",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "decimal_type": _NUMBER,
    "decimal_parsing": _NUMBER,
    "finite_number": "write a finite number",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "list_type": "write a list",
    "dict_type": _FIELDS,
    "model_type": _FIELDS,
    "model_attributes_type": _FIELDS,
    "timezone_aware": _TIME,
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "datetime_from_date_parsing": _TIME,
    "greater_than": "it must be above {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than": "it must be below {lt}",
    "less_than_equal": "it must be at most {le}",
    "string_too_long": "it may have at most {max_length} characters",
    "string_too_short": "it needs at least {min_length} characters",
    "too_long": "it may have at most {max_length} entries",
    "too_short": "it needs at least {min_length} entries",
    "decimal_max_digits": "it may have at most {max_digits} digits",
    "decimal_max_places": "it may have at most {decimal_places} digits after the point",
    "literal_error": "use {expected}",
    "enum": "use {expected}",
}
_SLUG: Final = "use 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
_PATTERNS: Final[Mapping[str, str]] = {
    r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$": _SLUG,
    r"^[^\x00-\x1f\x7f]*$": "control characters, such as a line break, are not allowed",
    r"^[^\x00-\x20\x7f]+$": "blanks and control characters are not allowed",
    r"^[^\x00-\x20\x7f]*$": "blanks and control characters are not allowed",
    r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$": "use letters, digits and . _ : / @ + -, beginning with a letter or digit",
    r"^((https?|tcp)://[^\s/?#]+[^\s?#]*|unix:///[^\s?#]+)?$": "write http://HOST/v1, https://HOST/v1, tcp://HOST:PORT "
    "or unix:///PATH",
    r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+|stored:[a-z0-9][a-z0-9-]*)?$": "write env:NAME, file:/PATH or stored:NAME",
    r"^[a-z0-9][a-z0-9._-]{0,62}$": "use 1 to 63 of a-z, 0-9 and . _ -, beginning with a letter or digit",
    r"^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$": "use 1 to 32 of a-z, 0-9 and -, beginning and ending with a letter or "
    "digit",
    r"^[a-z0-9-]*$": "use a-z, 0-9 and -",
    r"^[a-z0-9_.-]*$": "use a-z, 0-9 and _ . -",
    r"^[A-Za-z0-9_.-]+$": "use letters, digits and _ . -",
}


def describe_invalid(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """Return an InvalidRequest for pydantic's first validation error, with field, value and limit."""
    first = errors[0]
    if first["type"] == "json_invalid":
        position = first["loc"][-1]
        reason = first.get("ctx", {}).get("error", "not JSON")
        return MalformedBody(f"the body is not JSON at position {position}: {reason}", param="body")
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    field = ".".join(place) or "body"
    if isinstance(first.get("input"), bytes) and not place:
        return InvalidRequest("the body was not read as JSON; send the header content-type: application/json")
    if first["type"] == "missing":
        return InvalidRequest(f"{field} is missing", param=field)
    if first["type"] == "extra_forbidden":
        return InvalidRequest(f"{field} is not a field of this request", param=field)
    reason = reason_of(first)
    if first["type"] == "value_error" and not place:  # about the whole body, which is not shown
        return InvalidRequest(reason, param=field)
    # A credential that was pasted into the wrong field must not appear in logs.
    value = "not usable" if field.rpartition(".")[2] in _NEVER_SHOWN else _shown(first.get("input"))
    return InvalidRequest(f"{field} is {value}: {reason}", param=field)


def reason_of(complaint: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, and what to write instead, for one of pydantic's errors."""
    context: Mapping[str, Any] = complaint.get("ctx", {})
    if complaint["type"] == "string_pattern_mismatch":
        pattern = str(context.get("pattern", ""))
        return _PATTERNS.get(pattern, f"it must match {pattern}")
    words = _WORDS.get(complaint["type"])
    if words is None:
        return str(complaint["msg"]).removeprefix("Value error, ")
    said = words.format_map(context)
    if complaint["type"] == "literal_error" and isinstance(complaint.get("input"), str):
        choices = [part.strip("' ") for part in str(context["expected"]).replace(" or ", ", ").split(",")]
        said += did_you_mean(complaint["input"], choices)
    return said


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, Decimal | datetime) else repr(value)
    if len(text) <= _MAX_SHOWN:
        return text
    size = f" ({len(value)} long)" if isinstance(value, str | list | dict) else ""
    return f"{text[:_MAX_SHOWN]}…{size}"
