"""`python -m tollkeeper.supply.pins`: checks that all installed packages are pinned, and have the pinned version.

Each virtual environment has a list in constraints/. Status 1: a package differs from its list.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
# Environments beside the code, and their lists. The last two exist only if needed.
ENVIRONMENTS: Final[Mapping[str, str]] = {
    ".venv": "base.txt",
    ".venv-providers": "providers.txt",
    ".venv-vllm": "vllm.txt",
}
_PIN: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([A-Za-z0-9.!+_-]+)(?:\s*;.*)?")
_OWN: Final = "tollkeeper"
_INSTALLERS: Final = frozenset({"pip", "setuptools", "wheel", "uv"})  # packages of the virtual environment itself


@dataclass(frozen=True, slots=True)
class PinList:
    """A list of exact versions by normalised name, and the errors in its lines."""

    name: str
    versions: Mapping[str, str]
    faults: tuple[str, ...]


def read_pins(path: Path) -> PinList:
    """Parse a list with one `name==version` per line, and comments after #."""
    versions: dict[str, str] = {}
    faults = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        stated = line.partition("#")[0].strip()
        if not stated or stated.startswith("-"):
            continue
        found = _PIN.fullmatch(stated)
        if found is None:
            faults.append(f"{path.name}:{number}: {stated!r} is not an exact version; write name==version")
            continue
        name = normalised(found[1])
        if versions.setdefault(name, found[2]) != found[2]:
            faults.append(f"{path.name}:{number}: {name} is pinned twice, to {versions[name]} and to {found[2]}")
    return PinList(path.name, versions, tuple(faults))


def check_installed(installed: Mapping[str, str], pins: PinList, environment: str) -> Iterator[str]:
    """Yield an error for each installed package that is not pinned or has another version."""
    for name, version in sorted(installed.items()):
        if name == _OWN or name in _INSTALLERS:
            continue
        pinned = pins.versions.get(name)
        if pinned is None:
            yield f"{environment}: {name} {version} is installed and not in {pins.name}; add {name}=={version}"
        elif _public(version) != _public(pinned):
            yield f"{environment}: {name} is {version}, {pins.name} says {pinned}; install that, or renew the list"


def check_direct(dependencies: Iterable[str], pins: PinList) -> Iterator[str]:
    """Yield an error for each direct dependency that a list does not pin."""
    for stated in dependencies:
        name = normalised(re.split(r"[\[<>=!~;\s]", stated, maxsplit=1)[0])
        if name != _OWN and name not in pins.versions:
            yield f"pyproject.toml asks for {name}, which {pins.name} does not pin"


def installed_in(environment: Path) -> dict[str, str]:
    """Return the installed versions of a virtual environment, by normalised name."""
    places = [str(place) for place in environment.glob("lib/python3*/site-packages")]
    found = metadata.distributions(path=places)
    return {normalised(each.metadata["Name"]): each.version for each in found if each.metadata["Name"]}


def direct_dependencies(pyproject: Path) -> list[str]:
    """Return the project's direct dependencies, including extras."""
    project = tomllib.loads(pyproject.read_text())["project"]
    return [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]


def normalised(name: str) -> str:
    """Return a distribution's normalised name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_faults(root: Path = ROOT) -> list[str]:
    """Return the errors of all lists and existing environments."""
    faults: list[str] = []
    for environment, name in ENVIRONMENTS.items():
        pins = read_pins(root / "constraints" / name)
        faults += pins.faults
        if environment == ".venv":
            faults += check_direct(direct_dependencies(root / "pyproject.toml"), pins)
        if (root / environment).is_dir():
            faults += check_installed(installed_in(root / environment), pins, environment)
    return faults


def _public(version: str) -> str:
    return version.partition("+")[0]  # without the local version (build), such as +cpu


def main() -> int:
    """Print the errors; return the exit status."""
    faults = find_faults()
    for fault in faults:
        print(fault, file=sys.stderr)
    looked_at = [name for name in ENVIRONMENTS if (ROOT / name).is_dir()]
    print(f"pins: {', '.join(looked_at) or 'no environment'}: {'as listed' if not faults else f'{len(faults)} faults'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
