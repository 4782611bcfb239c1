"""Imports compiled modules in place of their sources if the sources have not changed since compilation.

`python -m tollkeeper.compile` writes the modules, with a list of them and of the hash of their sources. If a source
differs, the Python version differs, or there is no compiler, all modules run interpreted.
"""

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final, Literal

SWITCH: Final = "TOLLKEEPER_COMPILED"
ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = "compiled.json"
MODULES: Final = "backends/compiled_modules"  # their folder in an installed wheel
_OFF: Final = frozenset(("0", "false", "no", "off", "n", "f"))


def environment_folder() -> Path:
    """Return the folder of this environment's compiled modules."""
    return Path(sys.prefix) / "compiled"


# An installed wheel contains compiled modules.
FOLDER: Final = ROOT / MODULES if (ROOT / MODULES / LIST).is_file() else environment_folder()

State = Literal["compiled", "stale", "absent", "off"]


@dataclass(frozen=True, slots=True)
class CompiledModules:
    """Compiled modules: their files by module name if they can be used, otherwise the reason."""

    state: State
    reason: str
    files: Mapping[str, Path]


def digest_of(root: Path, sources: Iterable[str]) -> str:
    """Return one hash of source files, with their paths below `root`, and of the Python version that they are compiled
    for.

    Raises OSError if a file is missing.
    """
    known = hashlib.sha256(str(sysconfig.get_config_var("EXT_SUFFIX")).encode())
    for name in sorted(sources):
        content = (root / name).read_bytes()
        known.update(b"%b %d\n" % (name.encode(), len(content)))
        known.update(content)
    return known.hexdigest()


def find_compiled(
    folder: Path = FOLDER, root: Path = ROOT, environment: Mapping[str, str] = os.environ
) -> CompiledModules:
    """Return the compiled modules, if they match the current sources. Reads each source once."""
    switch = environment.get(SWITCH, "").lower()
    if switch in _OFF:
        return CompiledModules("off", f"{SWITCH}={switch}", {})
    try:
        kept = json.loads((folder / LIST).read_text())
        sources, digest = [str(name) for name in kept["sources"]], str(kept["digest"])
        files = {str(name): folder / str(file) for name, file in kept["modules"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return CompiledModules("absent", "the hot modules are not compiled; `make compile` does it", {})
    try:
        is_same = digest_of(root, sources) == digest and all(file.is_file() for file in files.values())
    except OSError:
        is_same = False
    if not is_same:
        return CompiledModules(
            "stale", "sources have changed since they were compiled; `make compile` does it again", {}
        )
    return CompiledModules("compiled", f"{len(files)} modules in {folder}", files)


class CompiledFinder(MetaPathFinder):
    """Import hook that finds compiled modules before their sources."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a compiled module; `None` for other modules."""
        file = self._files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, str(file)))


def use_compiled(folder: Path = FOLDER) -> CompiledModules:
    """Import compiled modules from now on, if they can be used; return what was found.

    Must be called before any of them is imported. A second call has no effect.
    """
    found = find_compiled(folder)
    if found.files and not any(isinstance(finder, CompiledFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, CompiledFinder(found.files))
    return found
