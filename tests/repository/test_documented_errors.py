"""Every code that the gateway, the control plane, analytics or the collector may answer is on the page of errors."""

import re
from pathlib import Path

from contracts import errors
from contracts.errors import TollkeeperError

ROOT = Path(__file__).resolve().parents[2]
# As an argument, as a class's own, and in a body.
CODE = re.compile(r'\bcode="([a-z_]+)"|^    code = "([a-z_]+)"|"code": "([a-z_]+)"', re.MULTILINE)
NAMED = re.compile(r"\bcode=(_?[A-Z][A-Z_]+)\b")
ANSWERING = (
    "gateway",
    "analytics",
    "collector",
    "contracts",
    "algorithms",
    "backends/control",
    "backends/llm",
    "backends/mcp",
    "backends/objects",
    "backends/providers",
    "backends/store",
    "backends/web",
)
# In no answer of HTTP: on a command line, in a log, or caught where it is raised.
ELSEWHERE = {
    "aborted",
    "batch_taken_over",
    "configuration_error",
    "copy_differs",
    "exports_left_out",
    "hours_left_out",
    "invalid_export",
    "invalid_record",
    "invalid_usage",
    "lease_lost",
    "newer_schema",
    "unexpected_row",
    "unpriceable",
    "wire_version_mismatch",
}


def codes_in(*rooms: str) -> set[str]:
    texts = [file.read_text() for room in rooms for file in (ROOT / room).rglob("*.py")]
    codes = {code for text in texts for found in CODE.findall(text) for code in found if code}
    names = {name for text in texts for name in NAMED.findall(text)}
    values = re.compile(rf'^({"|".join(sorted(names))})(?:: Final)? = "([a-z_]+)"', re.MULTILINE) if names else None
    return codes | {value for text in texts for _, value in (values.findall(text) if values else ())}


def test_each_code_is_on_the_page_and_nothing_else_is() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    first_columns = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"`([a-z_]+)`", " ".join(first_columns))) - {"code"}
    classes = {value for value in vars(errors).values() if isinstance(value, type)}
    codes = {one.code for one in classes if issubclass(one, TollkeeperError)}
    codes |= codes_in(*ANSWERING)
    assert codes - ELSEWHERE - listed == set()
    assert listed - codes - codes_in("backends/engine") == set()
