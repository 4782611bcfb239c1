"""A YAML file as plain data with line numbers, so that errors can name file and line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from contracts.errors import ConfigurationError

_MAX_VALUES: Final = 2_000_000
# libyaml's parser is ten times faster than the one in Python, which has better error messages.
_QUICK: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Remedies to add to the parser's messages, by a part of them.
_REMEDIES: Final = {
    "'\\t'": "; indent with spaces, not with tabs",
    "another document": "; a file holds one document: remove the line '---', or write two files",
    "could not determine a constructor": "; use plain text, numbers and lists, without YAML tags",
}


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A document: its content, and the nodes with line numbers. `source` is its name in messages."""

    source: str
    content: Any
    root: yaml.Node | None

    @classmethod
    def read(cls, path: Path) -> "YamlDocument":
        """Read a file. Raises ConfigurationError with file and line if it cannot be read or is not YAML."""
        try:
            text = path.read_text()
        except OSError as error:
            raise ConfigurationError(f"configuration file {path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path} is not text in UTF-8 (byte {error.start})") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> "YamlDocument":
        """Parse a text. Raises ConfigurationError as `read` does, also for a key that occurs twice in a mapping."""
        try:
            return cls._loaded(text, source, _QUICK)
        except (yaml.YAMLError, ValueError):
            return cls._explained(text, source)

    @classmethod
    def _loaded(cls, text: str, source: str, loader: Any) -> "YamlDocument":
        root = yaml.compose(text, Loader=loader)
        _refuse_endless(source, root)
        _refuse_repeated(source, root)
        return cls(source, yaml.load(text, Loader=loader), root)  # a safe loader, which creates only plain data

    @classmethod
    def _explained(cls, text: str, source: str) -> "YamlDocument":
        root: yaml.Node | None = None
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            return cls._loaded(text, source, yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark is not None else ""
            problem = getattr(error, "problem", None) or "not valid YAML"
            if isinstance(error, yaml.reader.ReaderError):
                where = f", line {text.count(chr(10), 0, error.position) + 1}"
                problem = f"character {error.character:#x} is not allowed in YAML"
            remedy = next((said for part, said in _REMEDIES.items() if part in problem), "")
            raise ConfigurationError(f"{source}{where}: {problem}{remedy}") from error
        except ValueError as error:
            line = _line_of_odd_scalar(root)
            raise ConfigurationError(f"{source}, line {line}: {error}; write text in quotes") from error

    def line_of(self, place: Iterable[int | str]) -> int:
        """Return the line (from 1) of a field, or of its nearest existing parent."""
        node = self.root
        line = 1 if node is None else node.start_mark.line + 1
        for step in place:
            if isinstance(node, yaml.MappingNode):
                key, node = next(((key, value) for key, value in node.value if key.value == step), (None, None))
                line = line if key is None else key.start_mark.line + 1  # the value may begin on a later line
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = node.start_mark.line + 1
            else:
                break
        return line

    def error(self, place: Sequence[int | str], message: str) -> ConfigurationError:
        """Return an error about a field: file, line, field and message."""
        field = ".".join(map(str, place))
        where = f"{self.source}, line {self.line_of(place)}"
        return ConfigurationError(f"{where}: {field}: {message}" if field else f"{where}: {message}")


def _refuse_endless(source: str, root: yaml.Node | None) -> None:
    """Refuse aliases that contain themselves, or that expand a small file to a huge document."""
    sizes: dict[int, int] = {}  # of finished nodes, with all aliases written out
    open_nodes: set[int] = set()
    waiting = [root] if root is not None else []
    while waiting:
        node = waiting[-1]
        if id(node) in sizes:
            waiting.pop()
            continue
        parts = _parts_of(node)
        unknown = [part for part in parts if id(part) not in sizes]
        line = node.start_mark.line + 1
        if id(node) in open_nodes or not unknown:
            if unknown:
                raise ConfigurationError(f"{source}, line {line}: an alias contains itself; write its values out")
            waiting.pop()
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in parts)
            if sizes[id(node)] > _MAX_VALUES:
                raise ConfigurationError(
                    f"{source}, line {line}: with its aliases written out this has more than {_MAX_VALUES:,} values; "
                    "use fewer aliases, or several files"
                )
            continue
        open_nodes.add(id(node))
        waiting.extend(unknown)


def _line_of_odd_scalar(root: yaml.Node | None) -> int:
    """Return the line of the first scalar that YAML reads as a date or number but that is invalid, such as
    2026-13-45.
    """
    waiting = [root] if root is not None else []
    visited: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            try:
                yaml.SafeLoader("").construct_object(node)
            except ValueError:
                return int(node.start_mark.line) + 1
        waiting.extend(reversed(_parts_of(node)))
    return 1


def _parts_of(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refuse_repeated(source: str, root: yaml.Node | None) -> None:
    waiting: list[Any] = [root] if root is not None else []
    visited: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in visited:  # an alias
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[Any] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                        line = key.start_mark.line + 1
                        raise ConfigurationError(f"{source}, line {line}: {key.value!r} is given twice in one mapping")
                    seen.add(key.value)
                waiting.append(value)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
