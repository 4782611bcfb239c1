"""Detects a bill file's format and parses it."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from analytics.reconciliation.formats import anthropic, openai
from analytics.reconciliation.formats.aws_cur import is_cur, read_cur
from analytics.reconciliation.formats.focus import is_focus, read_focus
from analytics.reconciliation.formats.pages import load_json
from analytics.reconciliation.formats.reading import MAX_BYTES, MAX_LINES, Problems, UnreadableBill, csv_header
from analytics.reconciliation.formats.vertex import is_vertex, read_vertex
from analytics.reconciliation.lines import BILL_FORMATS, BillFormat, BillLine, ReadBill

READERS: Final[Mapping[BillFormat, Callable[[str, str], ReadBill]]] = {
    "openai_usage": openai.read_usage,
    "openai_costs": openai.read_costs,
    "anthropic_usage": anthropic.read_usage,
    "anthropic_costs": anthropic.read_costs,
    "focus": read_focus,
    "aws_cur": read_cur,
    "vertex": read_vertex,
}


def read_bill(content: bytes, *, month: str = "", form: str = "") -> ReadBill:
    """Parse a provider's bill completely. `form` is a format of BILL_FORMATS; empty: detected.

    Raises UnreadableBill if it is not a bill, is truncated, has lines of other months, a second currency, negative
    amounts that are not credits, repeated lines, or unknown columns that may have money.
    """
    if not content.strip():
        raise UnreadableBill("the file is empty; export it again")
    if len(content) > MAX_BYTES:
        raise UnreadableBill(f"the file has {len(content):,} bytes, at most {MAX_BYTES:,} are read; split it by days")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableBill(
            f"the file is not text in UTF-8 (byte {error.start:,}); unpack it and export it as CSV or JSON"
        ) from None
    if form and form not in READERS:
        raise UnreadableBill(f"the format {form[:40]!r} is unknown; choose one of {', '.join(BILL_FORMATS)}")
    name: BillFormat = form or detect(text)  # type: ignore[assignment]
    bill = READERS[name](text, month)
    _check(bill)
    return bill


def detect(text: str) -> BillFormat:
    """Return the format of a file. Raises UnreadableBill if it is unknown."""
    if text.lstrip().startswith(("{", "[")):
        found = _detect_json(text)
    else:
        names = csv_header(text)
        found = (
            "focus"
            if is_focus(names)
            else "aws_cur"
            if is_cur(names)
            else "openai_costs"
            if "amount_value" in names and "line_item" in names
            else "openai_usage"
            if "num_model_requests" in names and openai.USAGE_COLUMNS.intersection(names)
            else None
        )
    if found is None:
        raise UnreadableBill(f"the file's format is unknown; name one of {', '.join(BILL_FORMATS)} with --format")
    return found


def _detect_json(text: str) -> BillFormat | None:
    first: Any = load_json(text if len(text) < 1_000_000 or "\n" not in text[:1_000_000] else _first_value(text))[0][1]
    if isinstance(first, list):
        first = first[0] if first else None
    if is_vertex(first):
        return "vertex"
    if not isinstance(first, Mapping) or not isinstance(first.get("data"), list):
        return None
    for bucket in first["data"]:
        results = bucket.get("results", bucket.get("result")) if isinstance(bucket, Mapping) else None
        for result in results if isinstance(results, list) else ():
            if not isinstance(result, Mapping):
                continue
            if result.get("object") == openai.COSTS_OBJECT:
                return "openai_costs"
            if str(result.get("object", "")).startswith("organization.usage."):
                return "openai_usage"
            return "anthropic_usage" if "uncached_input_tokens" in result else "anthropic_costs"
    return None


def _first_value(text: str) -> str:
    """Return the first line of a large file if it is a complete JSON value, else the file."""
    line = text.split("\n", 1)[0]
    return line if line.rstrip().endswith("}") and line.count("{") == line.count("}") else text


def _check(bill: ReadBill) -> None:
    if not bill.lines:
        rest = f"; {bill.skipped:,} lines are of other services" if bill.skipped else ""
        raise UnreadableBill(f"the file has no line of a model's usage{rest}; export the month's usage or costs")
    if len(bill.lines) > MAX_LINES:
        raise UnreadableBill(
            f"the file has {len(bill.lines):,} lines, at most {MAX_LINES:,} are read; export daily sums"
        )
    counts = Counter(line.identity for line in bill.lines)
    if len(counts) == len(bill.lines):
        return
    problems, first = Problems(), dict[object, BillLine]()
    for line in bill.lines:
        known = first.setdefault(line.identity, line)
        if known is not line:
            problems.add(line.number, "all", f"it repeats line {known.number}: the same charge twice")
    problems.raise_any()
