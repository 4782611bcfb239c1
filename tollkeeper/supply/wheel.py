"""Build hook of the wheel (`make wheel`): adds compiled modules, data files, and exact requirements.

The wheel pins all requirements, including indirect ones, so that an installation has the tested versions. A plain
`pip install` installs everything except PyTorch, which is the extra `engine`.
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
if str(_ROOT) not in sys.path:  # Hatchling loads this file by its path, so the package is not importable yet
    sys.path.insert(0, str(_ROOT))

from backends.processes.compiled import MODULES, environment_folder, find_compiled  # noqa: E402
from tollkeeper.compile import HOT, CannotCompile, compile_modules, has_modules  # noqa: E402
from tollkeeper.packaged_files import INSTALLED, PACKAGED  # noqa: E402
from tollkeeper.supply.pins import normalised, read_pins  # noqa: E402

# Extras of a plain installation: all except `engine`, whose PyTorch takes gigabytes, and `dev`.
DEFAULT_EXTRAS: Final = ("gateway", "collector", "store", "analytics", "dashboard", "cli")
# Packages that mypyc needs in the build environment to type-check the hot modules.
_COMPILES_WITH: Final = ("mypy", "msgspec")
_OLDEST_GLIBC: Final = 17  # manylinux2014, the oldest tag that installers of Python 3.11 support
_PURE: Final = "TOLLKEEPER_WHEEL_PURE"
_NEEDED_GLIBC: Final = re.compile(r"\bGLIBC_2\.(\d+)")
_SYSTEM_LIBRARIES: Final = frozenset(("libc.so.6", "libpthread.so.0", "libm.so.6", "libdl.so.2"))


class WheelHook(BuildHookInterface[Any]):
    """Adds a checkout's files outside of its packages to the wheel."""

    PLUGIN_NAME = "custom"
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return the packages that compiling needs in the build environment."""
        versions = read_pins(_ROOT / "constraints" / "base.txt").versions
        return [f"{name}=={versions[name]}" for name in _COMPILES_WITH]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files, requirements and compiled modules; nothing for an editable installation."""
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
        """Delete modules that were compiled only for this wheel."""
        if self._scratch is not None:
            self._scratch.cleanup()

    def _compiled(self) -> Path | None:
        """Return a folder with the compiled hot modules (this environment's if up to date); `None` if not possible."""
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
    """Return exact requirements of a plain installation, and those of the extras with the engine."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    versions = read_pins(root / "constraints" / "base.txt").versions
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    plain = _exact([*project["dependencies"], *(each for name in DEFAULT_EXTRAS for each in extras[name])], versions)
    engine = _exact(extras["engine"], versions)
    added = [f"{engine[name]}; extra == 'engine' or extra == 'all'" for name in sorted(engine.keys() - plain.keys())]
    return [*(plain[name] for name in sorted(plain)), *added]


def _exact(stated: Iterable[str], versions: Mapping[str, str]) -> dict[str, str]:
    """Return "name[extras]==version" of requirements and their dependencies, by name."""
    found = _closure(stated, versions)
    return {name: f"{name}{extras}=={versions[name]}" for name, extras in sorted(found)}


def _closure(stated: Iterable[str], versions: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return (name, "[extras]") of requirements and their installed dependencies."""
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
    """Yield the dependencies of an installed distribution on this platform; nothing if it is not installed."""
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
    """Return the platform tag of shared libraries: the oldest glibc that has all symbols they need (PEP 600).

    If objdump is missing, or if they need libraries besides the C library: this machine's own tag.
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
