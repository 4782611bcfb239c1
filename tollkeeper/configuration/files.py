"""Reads YAML files as objects of a configuration, each with its file and line."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backends.yaml_document import YamlDocument
from contracts.errors import ConfigurationError
from tollkeeper.resources.apps import plain_data

_ENDINGS: Final = (".yaml", ".yml", ".json")
# Secret fields: files have env:NAME or file:PATH, whose value is read here and sent to the control plane.
_SECRETS: Final = {"keys": "key", "alert_channels": "address"}
_NO_SECRET_KINDS: Final = ("email",)  # of channels: an e-mail address is not secret
_STDIN: Final = "-"
_OWN: Final = "x-"  # prefix of sections that are ignored, such as one with YAML anchors


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """An object of a file, with its position there."""

    section: str
    entry: dict[str, Any]
    document: YamlDocument
    number: int

    def error(self, place: Sequence[int | str], message: str) -> ConfigurationError:
        """Return an error about one of its fields, with file and line."""
        return self.document.error((self.section, self.number, *place), message)

    @property
    def where(self) -> str:
        """Return file and line, as text."""
        return f"{self.document.source}:{self.document.line_of((self.section, self.number))}"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The objects of all files, and the names of their sections, including empty ones."""

    objects: list[PlacedObject]
    sections: list[str]


def read_configuration(paths: Sequence[Path]) -> Configuration:
    """Read files, and all YAML and JSON files of directories; "-" is standard input.

    Raises ConfigurationError naming file and line.
    """
    objects: list[PlacedObject] = []
    sections: dict[str, None] = {}
    for document in _documents(paths):
        content = document.content if document.content is not None else {}
        if not isinstance(content, dict):
            raise document.error((), "the file must hold sections such as pools: or models:")
        for section, entries in content.items():
            if str(section).startswith(_OWN):
                continue
            sections[str(section)] = None
            objects.extend(_objects(document, str(section), entries))
    if not sections:
        names = ", ".join("standard input" if str(path) == _STDIN else str(path) for path in paths)
        raise ConfigurationError(
            f"{names}: there is no section such as pools: or models:, so there is nothing to apply"
        )
    return Configuration(objects, list(sections))


def _documents(paths: Sequence[Path]) -> Iterator[YamlDocument]:
    for path in paths:
        if str(path) == _STDIN:
            yield YamlDocument.parse(sys.stdin.read(), "standard input")
        elif path.is_dir():
            found = sorted(each for each in path.rglob("*") if each.suffix in _ENDINGS and each.is_file())
            if not found:
                raise ConfigurationError(f"{path} holds no .yaml, .yml or .json file")
            yield from map(YamlDocument.read, found)
        else:
            yield YamlDocument.read(path)


def _objects(document: YamlDocument, section: str, entries: object) -> Iterator[PlacedObject]:
    if entries is None:
        return
    if not isinstance(entries, list):
        raise document.error((section,), "must be a list; begin each entry with a dash")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise document.error((section, number), "must be fields with values, such as name: small")
        try:
            plain = plain_data(entry)
        except ConfigurationError as error:
            raise document.error((section, number), error.message) from error
        placed = PlacedObject(section, plain, document, number)
        _resolve_secret(placed)
        yield placed


def _resolve_secret(placed: PlacedObject) -> None:
    field = _SECRETS.get(placed.section, "")
    written = placed.entry.get(field)
    if not field or not written:
        return
    if placed.section == "alert_channels" and placed.entry.get("kind") in _NO_SECRET_KINDS:
        return
    kind, _, name = str(written).partition(":")
    if kind == "env":
        value = os.environ.get(name)
        if not value:
            raise placed.error((field,), f"the environment has no {name}")
    elif kind == "file":
        try:
            value = Path(name).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise placed.error((field,), f"{name} cannot be read: {why}") from error
    else:
        raise placed.error((field,), "a secret is given by reference: write env:NAME or file:PATH")
    placed.entry[field] = value
