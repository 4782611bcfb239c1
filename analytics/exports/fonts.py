"""Finds fonts of this machine that have a text's letters, to embed in a PDF of more than Latin-1."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from unicodedata import category

from fontTools.ttLib import TTFont, TTLibError

INSTALL: Final = (
    "install fonts that have them (Debian: apt install fonts-dejavu-core fonts-noto-core fonts-noto-cjk), or copy a "
    "font file to ~/.local/share/fonts"
)
_SUFFIXES: Final = frozenset((".ttf", ".otf", ".ttc", ".otc"))
# Names of styles, which are used only if no plain font has a letter.
_STYLES: Final = ("bold", "italic", "oblique", "light", "thin", "black", "medium", "condensed", "mono", "serif")
_RESTRICTED: Final = 0x0002  # OS/2 fsType: the licence forbids embedding


@dataclass(frozen=True, slots=True)
class FontFace:
    """A font file, or the first font of a collection; `letters` are the code points that it has."""

    path: Path
    letters: frozenset[int]


def faces_for(text: str) -> tuple[list[FontFace], str]:
    """Return a small set of fonts that together have the letters of a text, and the letters that no font has."""
    wanted = needed_letters(text)
    chosen: list[FontFace] = []
    plain, styled = _font_files()
    for paths in (plain, styled):
        faces = [face for path in paths for face in _faces(path, path.stat().st_mtime_ns)] if wanted else []
        while wanted:
            best = max(faces, key=lambda face: len(wanted & face.letters), default=None)
            if best is None or not wanted & best.letters:
                break
            chosen.append(best)
            wanted -= best.letters
    return chosen, "".join(map(chr, sorted(wanted)))


def needed_letters(text: str) -> frozenset[int]:
    """Return the code points that a font must have to show a text: all but spaces, controls and joiners."""
    return frozenset(ord(letter) for letter in text if letter != " " and category(letter) not in ("Cc", "Cf"))


def _font_files() -> tuple[list[Path], list[Path]]:
    """Return the plain and the styled font files in Linux's font directories, sans-serif ones first."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    directories = [Path(name).expanduser() / "fonts" for name in (home, *shared.split(":")) if name]
    found = {path for directory in directories for path in _below(directory)}
    ordered = sorted(found, key=lambda path: ("sans" not in path.stem.lower(), path.as_posix()))
    styled = [path for path in ordered if any(style in path.stem.lower() for style in _STYLES)]
    return [path for path in ordered if path not in styled], styled


def _below(directory: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(directory):  # unreadable directories are skipped
        paths = (Path(folder) / name for name in names)
        yield from (path for path in paths if path.suffix.lower() in _SUFFIXES and path.is_file())


@lru_cache(maxsize=2_000)
def _faces(path: Path, changed_ns: int) -> tuple[FontFace, ...]:
    """Read the letters of a font file (`changed_ns` is its cache key); empty if it must not be embedded or is
    unreadable.

    Only a collection's first font is read: the others have the same letters in another regional form or weight.
    """
    try:
        number = 0 if path.suffix.lower() in (".ttc", ".otc") else -1
        with path.open("rb") as file, TTFont(file, fontNumber=number, lazy=True) as font:
            return (FontFace(path, frozenset(font.getBestCmap() or ())),) if _is_embeddable(font) else ()
    except (TTLibError, OSError, LookupError, ValueError, AssertionError):
        return ()


def _is_embeddable(font: TTFont) -> bool:
    has_outlines = "glyf" in font or "CFF " in font
    return has_outlines and not ("OS/2" in font and font["OS/2"].fsType & 0xF == _RESTRICTED)
