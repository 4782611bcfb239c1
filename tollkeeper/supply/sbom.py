"""`python -m tollkeeper.supply.sbom FILE`: writes a software bill of materials (CycloneDX 1.6 JSON) of the environment.

cyclonedx-bom generates it from the installed packages; it is validated against the schema before it is written.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError, TollkeeperError
from tollkeeper.supply.pins import ROOT

_SPECIFICATION: Final = "1.6"
_SECONDS: Final = 600


def make_sbom(to: Path, python: str = sys.executable, root: Path = ROOT) -> int:
    """Write the bill of materials of an environment; return the number of components.

    Raises ConfigurationError if the tool is not installed or its result is invalid.
    """
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(root / "pyproject.toml")]
    command += ["--spec-version", _SPECIFICATION, "--output-format", "JSON", "--output-reproducible", "--no-validate"]
    try:
        done = subprocess.run([*command, python], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(f"the bill of materials was not made within {_SECONDS} seconds") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise ConfigurationError(f"the bill of materials cannot be made: {last[:300]}")
    components = validated(done.stdout)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(done.stdout)
    return components


def validated(text: str) -> int:
    """Validate a bill of materials against CycloneDX's schema; return the number of components.

    Raises ConfigurationError if it is invalid.
    """
    try:
        from cyclonedx.schema import SchemaVersion  # imported here: a development tool
        from cyclonedx.validation.json import JsonStrictValidator
    except ModuleNotFoundError as error:
        raise ConfigurationError("a bill of materials needs cyclonedx-bom; install tollkeeper[dev]") from error
    fault = JsonStrictValidator(SchemaVersion.from_version(_SPECIFICATION)).validate_str(text)
    if fault is not None:
        raise ConfigurationError(
            f"the bill of materials is no CycloneDX {_SPECIFICATION}: {str(fault).splitlines()[0]}"
        )
    components = json.loads(text).get("components", [])
    if not components:
        raise ConfigurationError("the bill of materials is empty; name the environment's Python")
    return len(components)


def main(arguments: list[str]) -> int:
    """Write the bill of materials to the file named by the only argument; return the exit status."""
    if len(arguments) != 1:
        print("usage: python -m tollkeeper.supply.sbom FILE", file=sys.stderr)
        return 2
    try:
        components = make_sbom(Path(arguments[0]))
    except TollkeeperError as error:
        print(f"sbom: {error.message}", file=sys.stderr)
        return 1
    print(f"sbom: {arguments[0]}: {components} components, CycloneDX {_SPECIFICATION}, valid")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
