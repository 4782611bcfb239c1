"""Formats help as plain text: unabridged summaries, argument names and value names in capitals, examples to copy."""

import re
from pathlib import Path
from typing import Any, Final, get_args

MAX_WIDTH: Final = 120  # maximum width of help in columns
_EXAMPLE_WIDTH: Final = 76  # maximum width of an example, which is indented by two in a terminal of 80 columns
_SENTENCE_END: Final = re.compile(r"(?<=\.)\s")
_WORD: Final = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")
_VALUES: Final = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


def with_plain_help(command: Any) -> Any:
    """Change the help of a command and its subcommands to plain text without Python terms; return the command.

    Rich's tables are not used, because they truncate option names at 80 columns.
    """
    command.rich_markup_mode = None
    command.short_help = first_sentence(command.short_help or command.help or "")
    for parameter in command.params:
        _make_plain(parameter)
    for below in getattr(command, "commands", {}).values():
        with_plain_help(below)
    return command


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text, on one line. Click's own summary is truncated."""
    return " ".join(_SENTENCE_END.split(text.strip(), maxsplit=1)[0].split())


def examples_text(lines: list[str]) -> str:
    r"""Return the examples section of a command's help; long lines continue after ` \`, as in a shell.

    The marker \b before a paragraph keeps Click from wrapping it, which would split options at their hyphens.
    """
    head = "Examples:" if len(lines) > 1 else "Example:"
    return "\n\n".join([head, *("\b\n" + "\n".join(_broken(line)) for line in lines)])


def _broken(line: str) -> list[str]:
    rows = [""]
    for word in _WORD.findall(line):
        longer = f"{rows[-1]} {word}" if rows[-1].strip() else rows[-1] + word
        if len(longer) > _EXAMPLE_WIDTH - len(" \\"):
            rows[-1] += " \\"
            longer = f"    {word}"
            rows.append(longer)
        rows[-1] = longer
    return rows


def _make_plain(parameter: Any) -> None:
    if "default" in (parameter.help or ""):
        parameter.show_default = False  # the help text states the default
    if parameter.param_type_name == "argument":
        parameter.metavar = (parameter.metavar or parameter.name).strip("[].").upper()
        usage = parameter.metavar if parameter.required else f"[{parameter.metavar}]"
        pieces = [usage + ("..." if parameter.nargs != 1 else "")]
        parameter.get_usage_pieces = lambda ctx: pieces
        parameter.display_type_rich = lambda ctx: ""  # removes "<str>" after the name
    elif parameter.metavar is None:
        parameter.metavar = _value_of(parameter.type_descriptor)


def _value_of(kind: Any) -> str | None:
    """Return the placeholder for an option's value, such as TEXT; None if Typer lists the choices."""
    if kind.is_choice:
        return None
    if kind.is_datetime:
        return "TIME"
    if kind.is_path:
        return "PATH"
    annotation = get_args(kind.annotation)[0] if kind.is_list else kind.annotation
    return _VALUES.get(annotation, "TEXT")
