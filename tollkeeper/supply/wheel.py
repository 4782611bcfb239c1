"""Build hook of the wheel (`make wheel`): adds compiled modules, files that are no code, and exact versions.

The wheel's requirements are exact, what they bring in included, so that an installation has the versions that were
tested. A plain `pip install` brings everything but PyTorch, which is the extra `engine`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement

_ROOT: Final = Path(__file__).resolve().parents[2]
if str(_ROOT) not in sys.path:  # Hatchling loads this file by its path
    sys.path.insert(0, str(_ROOT))

from backends.processes.compiled import MODULES, environment_folder, find_compiled  # noqa: E402
from tollkeeper.compile import HOT, CannotCompile, compile_modules, has_modules  # noqa: E402
from tollkeeper.packaged_files import INSTALLED, PACKAGED  # noqa: E402
from tollkeeper.supply.pins import normalised, read_pins  # noqa: E402

# What a plain installation has: all but `engine`, whose PyTorch takes gigabytes, and `dev`.
DEFAULT_EXTRAS: Final = ("gateway", "collector", "store", "analytics", "dashboard", "cli")
# What mypyc needs to read the hot modules with their types, in a build environment of its own.
_COMPILES_WITH: Final = ("mypy", "msgspec")
_OLDEST_GLIBC: Final = 17  # manylinux2014, the oldest that installers of Python 3.11 know by number
_PURE: Final = "TOLLKEEPER_WHEEL_PURE"
_NEEDED_GLIBC: Final = re.compile(r"\bGLIBC_2\.(\d+)")
_SYSTEM_LIBRARIES: Final = frozenset(("libc.so.6", "libpthread.so.0", "libm.so.6", "libdl.so.2"))


class WheelHook(BuildHookInterface[Any]):
    """Adds to the wheel what a checkout has beside its packages."""

    PLUGIN_NAME = "custom"
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return what compiling needs in the build environment."""
        versions = read_pins(_ROOT / "constraints" / "base.txt").versions
        return [f"{name}=={versions[name]}" for name in _COMPILES_WITH]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files, requirements and compiled modules. An editable installation needs none of them."""
        if version == "editable":
            return
        for path in PACKAGED:
            build_data["force_include"][str(_ROOT / path)] = f"{INSTALLED}/{path}"
        build_data["dependencies"] += exact_requirements(_ROOT)
        folder = self._compiled()
        if folder is None:
            return
        for file in sorted(folder.iterdir()):
            build_data["force_include"][str(file)] = f"{MODULES}/{file.name}"
        build_data["pure_python"] = False
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["tag"] = f"{python}-{python}-{platform_tag(folder.glob('*.so'))}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled for this wheel alone."""
        if self._scratch is not None:
            self._scratch.cleanup()

    def _compiled(self) -> Path | None:
        """Return a folder with the hot modules compiled: this environment's where they are of these sources."""
        if os.environ.get(_PURE, "") not in ("", "0"):
            return None
        folder = environment_folder()
        found = find_compiled(folder, environment={})
        if found.state == "compiled" and has_modules(found.files, HOT):
            return folder
        self._scratch = tempfile.TemporaryDirectory()
        folder = Path(self._scratch.name) / "compiled"
        try:
            compile_modules(HOT, folder)
        except CannotCompile as error:
            self.app.display_warning(f"the wheel has no compiled modules: {error}")
            return None
        return folder


def exact_requirements(root: Path) -> list[str]:
    """Return requirements with exact versions of a plain installation, and of the engine that the extras add."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    versions = read_pins(root / "constraints" / "base.txt").versions
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    plain = _exact([*project["dependencies"], *(each for name in DEFAULT_EXTRAS for each in extras[name])], versions)
    engine = _exact(extras["engine"], versions)
    added = [f"{engine[name]}; extra == 'engine' or extra == 'all'" for name in sorted(engine.keys() - plain.keys())]
    return [*(plain[name] for name in sorted(plain)), *added]


def _exact(stated: Iterable[str], versions: Mapping[str, str]) -> dict[str, str]:
    """Return name==version of requirements and of what they bring in, by name, with the extras that are asked for."""
    found = _closure(stated, versions)
    return {name: f"{name}{extras}=={versions[name]}" for name, extras in sorted(found)}


def _closure(stated: Iterable[str], versions: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return (name, its extras in brackets) of requirements and of what they bring in, as far as that is installed."""
    waiting = [Requirement(each) for each in stated]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = normalised(requirement.name)
        asked = name, f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        if asked not in seen and name in versions:
            seen.add(asked)
            waiting += _brought_in(requirement)
    return seen


def _brought_in(requirement: Requirement) -> Iterator[Requirement]:
    """Return what an installed distribution requires here; nothing if it is not installed."""
    try:
        stated = metadata.requires(requirement.name) or []
    except metadata.PackageNotFoundError:
        return
    for each in stated:
        further = Requirement(each)
        asked = ("", *requirement.extras)
        if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in asked):
            yield further


def platform_tag(libraries: Iterable[Path], inspect: str = "objdump") -> str:
    """Return the platform that shared libraries run on: the oldest glibc that has all they need (PEP 600).

    Without a tool to look into them, or if they need more than the C library: this machine's own tag.
    """
    import sysconfig

    own = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not own.startswith("linux_") or shutil.which(inspect) is None:
        return own
    newest = _OLDEST_GLIBC
    for library in libraries:
        told = subprocess.run([inspect, "-p", str(library)], capture_output=True, text=True, check=False)
        needed = set(re.findall(r"NEEDED\s+(\S+)", told.stdout))
        beside = {name for name in needed if not name.startswith("ld-linux")} - _SYSTEM_LIBRARIES
        if told.returncode or beside:
            return own
        newest = max([newest, *(int(minor) for minor in _NEEDED_GLIBC.findall(told.stdout))])
    return f"manylinux_2_{newest}_{own.removeprefix('linux_')}"
