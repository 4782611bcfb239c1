"""Parses saved pages of a usage or cost API: one page, an array of pages, or a page per line."""

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from analytics.reconciliation.formats.reading import Problems, UnreadableBill, shown

_LONGEST_NUMBER: Final = 40
# A high surrogate without a low one after it, or a low one without a high one before it.
_HALF_LETTER: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def load_json(text: str) -> list[tuple[int, Any]]:
    """Return the values of a JSON or JSON Lines file, each with its line number. Raises UnreadableBill."""
    if _HALF_LETTER.search(text):
        raise UnreadableBill("the file was not imported: it has a lone surrogate (\\ud800 to \\udfff)")
    try:
        return [(1, _loaded(text))]
    except RecursionError:
        raise UnreadableBill("the file was not imported: its JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        whole = error
    values = []
    lines = text.splitlines()
    if len(lines) < 2 or not lines[0].rstrip().endswith("}"):
        raise UnreadableBill(_cut(whole.lineno, whole.colno, whole.msg))
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values.append((number, _loaded(line)))
        except json.JSONDecodeError as error:
            raise UnreadableBill(_cut(number, error.colno, error.msg)) from None
        except RecursionError:
            raise UnreadableBill("the file was not imported: its JSON is nested too deeply") from None
    return values


def _loaded(text: str) -> Any:
    return json.loads(text, parse_float=_number, parse_int=_whole_number, parse_constant=str)


def _number(text: str) -> Decimal | str:
    # A number outside Decimal's range remains text, which the parser of its column refuses.
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def _whole_number(text: str) -> int | str:
    return int(text) if len(text) <= _LONGEST_NUMBER else text


def _cut(line: int, column: int, what: str) -> str:
    return (
        f"the file was not imported: line {line}, column {column}: this is not JSON ({what}); the file may be cut "
        "short: export it again"
    )


def results(text: str, problems: Problems) -> Iterator[tuple[int, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each result of each bucket as (running number, result, bucket).

    A page with `has_more` must be followed by another page; else a problem is added, as part of the bill is missing.
    """
    number = 0
    pages: list[Any] = []
    for _, value in load_json(text):
        pages.extend(value if isinstance(value, list) else [value])
    for place, page in enumerate(pages):
        if not isinstance(page, dict) or not isinstance(page.get("data"), list):
            problems.add(number + 1, "data", "this is not a page of the API: it has no list `data`")
            return
        if place == len(pages) - 1 and page.get("has_more"):
            problems.add(
                number + 1, "has_more", "the API has further pages; save all of them into one file, as an array"
            )
            return
        for bucket in page["data"]:
            found = bucket.get("results", bucket.get("result")) if isinstance(bucket, dict) else None
            if not isinstance(found, list):
                problems.add(number + 1, "results", f"{shown(bucket)} is not a bucket with a list `results`")
                continue
            for result in found:
                number += 1
                if isinstance(result, dict):
                    yield number, bucket, result
                else:
                    problems.add(number, "results", f"{shown(result)} is not an object")
