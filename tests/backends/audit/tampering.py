"""Random changes to a chain's files, each of which a verification has to find."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from backends.audit.places import HEAD, segment_names


def edit_byte(directory: Path, chance: random.Random) -> None:
    """Change one byte of a segment."""
    path = _segment(directory, chance)
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    content[at] = chance.choice([value for value in range(256) if value != content[at]])
    _replace(path, bytes(content))


def delete_entry(directory: Path, chance: random.Random) -> None:
    """Remove one entry."""
    path = _segment(directory, chance)
    lines = _lines(path)
    del lines[chance.randrange(len(lines))]
    _replace(path, b"".join(lines))


def swap_entries(directory: Path, chance: random.Random) -> None:
    """Put two entries into each other's place."""
    path = _segment(directory, chance, least=2)
    lines = _lines(path)
    one, other = chance.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    _replace(path, b"".join(lines))


def double_entry(directory: Path, chance: random.Random) -> None:
    """Write an entry once more, right behind it or anywhere."""
    path = _segment(directory, chance)
    lines = _lines(path)
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    _replace(path, b"".join(lines))


def cut_end(directory: Path, chance: random.Random) -> None:
    """Cut the chain anywhere: the rest of that segment goes, and all later ones."""
    names = segment_names(directory)
    at = chance.randrange(len(names))
    path = directory / names[at]
    content = path.read_bytes()
    _replace(path, content[: chance.randrange(len(content))])
    for name in names[at + 1 :]:
        (directory / name).unlink()


def remove_segment(directory: Path, chance: random.Random) -> None:
    """Remove a whole segment."""
    _segment(directory, chance).unlink()


def swap_segments(directory: Path, chance: random.Random) -> None:
    """Swap the names of two segments."""
    one, other = (directory / name for name in chance.sample(segment_names(directory), 2))
    kept = one.read_bytes()
    _replace(one, other.read_bytes())
    _replace(other, kept)


def change_checkpoint(directory: Path, chance: random.Random) -> None:
    """Change a byte of a checkpoint, in the chain or of the last one's copy."""
    path = directory / HEAD
    content = path.read_bytes()
    if chance.random() < 0.5:
        at = chance.randrange(len(content))
        _replace(path, content[:at] + bytes([content[at] ^ (1 << chance.randrange(7))]) + content[at + 1 :])
        return
    for name in segment_names(directory):
        found = (directory / name).read_bytes()
        if (start := found.find(b'"signature":"')) >= 0:
            at = start + 13 + chance.randrange(128)
            digit = chance.choice([one for one in b"0123456789abcdef" if one != found[at]])
            _replace(directory / name, found[:at] + bytes([digit]) + found[at + 1 :])
            return


def remove_head(directory: Path, chance: random.Random) -> None:
    """Remove the last checkpoint's copy."""
    (directory / HEAD).unlink()


TAMPERINGS: tuple[Callable[[Path, random.Random], None], ...] = (
    *(edit_byte, delete_entry, swap_entries, double_entry, cut_end),
    *(remove_segment, swap_segments, change_checkpoint, remove_head),
)


def copy_of(chain: Path, to: Path) -> Path:
    """Return a copy of a chain's directory."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(chain, to)
    return to


def _segment(directory: Path, chance: random.Random, least: int = 1) -> Path:
    paths = [directory / name for name in segment_names(directory)]
    return chance.choice([path for path in paths if len(_lines(path)) >= least])


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def _replace(path: Path, content: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(content)
