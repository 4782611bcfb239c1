""".env.example against the settings classes: every variable is there, with the default that the code has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, TypeAdapter
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from contracts.serving.setting_names import SETTING_NAMES

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / ".env.example"
PREFIX = "TOLLKEEPER_"

Settings = Mapping[str, type[BaseSettings]]


@dataclass(frozen=True)
class Example:
    """A line of the file: `#NAME=value` where the value is the default, with the comment above it."""

    value: str
    comment: str


def examples() -> dict[str, Example]:
    found: dict[str, Example] = {}
    comment: list[str] = []
    for line in FILE.read_text().splitlines():
        variable = re.fullmatch(r"#?([A-Z][A-Z_0-9]*)=(.*)", line)
        if variable:
            assert variable.group(1) not in found, f"{variable.group(1)} stands there twice"
            found[variable.group(1)] = Example(variable.group(2), " ".join(comment))
        elif line.startswith("# "):
            comment.append(line[2:])
        if not line.strip():
            comment = []  # a comment holds for the lines directly below it
    return found


def defaults(classes: Settings) -> dict[str, dict[str, Any]]:
    """Return every variable with its default in each process that reads it."""
    found: dict[str, dict[str, Any]] = {}
    for module, settings in classes.items():
        assert settings.model_config.get("env_prefix") == PREFIX, module
        for name, field in settings.model_fields.items():
            assert field.default is not PydanticUndefined or field.default_factory, f"{module}: {name} has no default"
            found.setdefault(f"{PREFIX}{name}".upper(), {})[module] = field.get_default(call_default_factory=True)
    return found


def means(written: str, default: Any) -> bool:
    """Return whether a written value is this default. Nothing written stands for unset or empty."""
    plain = default.get_secret_value() if isinstance(default, SecretStr) else default
    if written == "":
        return plain in (None, "") or plain == () or plain == []
    if plain is None:
        return False
    return bool(TypeAdapter(type(plain)).validate_python(written) == plain)


def command_line_variables() -> set[str]:
    """Return the variables that stand for options of the command line."""
    options = (path.read_text() for path in (ROOT / "tollkeeper").glob("*.py"))
    return {name for text in options for name in re.findall(rf'envvar="({PREFIX}[A-Z_]+)"', text)}


def test_every_setting_is_in_the_file(settings_classes: Settings) -> None:
    assert (set(defaults(settings_classes)) | command_line_variables()) - set(examples()) == set()


def test_every_variable_in_the_file_is_a_setting(settings_classes: Settings) -> None:
    ours = {name for name in examples() if name.startswith(PREFIX)}
    assert ours - set(defaults(settings_classes)) - command_line_variables() == set()


def test_every_default_in_the_file_is_the_code_s(settings_classes: Settings) -> None:
    written = examples()
    for variable, by_process in defaults(settings_classes).items():
        known = list(by_process.values())
        assert any(means(written[variable].value, default) for default in known), f"{variable}: {known}"
        for default in known:
            told = means(written[variable].value, default) or f'"{default}"' in written[variable].comment
            assert told, f"the comment of {variable} does not tell the other default, {default!r}"


def test_every_variable_is_explained() -> None:
    assert [name for name, example in examples().items() if len(example.comment.split()) < 3] == []


def test_copying_the_file_changes_nothing() -> None:
    """What has a default is commented out, so a copy follows when a default changes."""
    active = re.findall(r"^(TOLLKEEPER_[A-Z_]+)=", FILE.read_text(), re.MULTILINE)
    assert active == []


@pytest.mark.parametrize(
    ("written", "default", "same"),
    [("", None, True), ("", "", True), ("8080", 8080, True), ("8080", 8081, False), ("", 0, False), ("x", None, False)],
)
def test_a_value_is_compared_as_its_type(written: str, default: object, same: bool) -> None:
    assert means(written, default) is same


def test_every_setting_has_a_name_that_processes_know(settings_classes: Settings) -> None:
    """Else a process would refuse to start with it as misspelt."""
    assert (set(defaults(settings_classes)) | command_line_variables()) - SETTING_NAMES == set()
    beside = SETTING_NAMES - set(defaults(settings_classes)) - command_line_variables()
    sources = " ".join(
        path.read_text() for room in ("backends", "gateway", "tollkeeper") for path in (ROOT / room).rglob("*.py")
    )
    assert {name for name in beside if f'"{name}"' not in sources} == set(), "nothing reads them"
