"""Every code that an application may be told stands on the page of errors."""

import re
from pathlib import Path

from contracts import errors
from contracts.errors import TollkeeperError

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r'\bcode="([a-z_]+)"')
# Said by other processes, or to those who start one.
ELSEWHERE = {
    "configuration_error",
    "newer_schema",
    "invalid_usage",
    "invalid_record",
    "store_unavailable",
    "store_refused",
    "wire_version_mismatch",
    "missing_admin_token",
    "invalid_admin_token",
}


def codes_in(*rooms: str) -> set[str]:
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py") if "control" not in file.parts]
    return {code for file in files for code in CODE.findall(file.read_text())}


def test_each_code_is_on_the_page_and_nothing_else_is() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    first_columns = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"`([a-z_]+)`", " ".join(first_columns))) - {"code"}
    classes = {value for value in vars(errors).values() if isinstance(value, type)}
    codes = {one.code for one in classes if issubclass(one, TollkeeperError)}
    codes |= codes_in("gateway", "backends/llm", "backends/objects", "backends/providers")
    assert codes - ELSEWHERE - listed == set()
    assert listed - codes - codes_in("backends/engine") == set()
