"""Builds the mock upstream and the load client."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_SOURCES: Final = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Tools:
    """The two programs, built."""

    mock: Path
    client: Path

    @classmethod
    def build(cls, directory: Path) -> Self:
        """Compile both into a directory. Raises RuntimeError if there is no compiler or it finds an error."""
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise RuntimeError("there is no C compiler: apt-get install gcc libc6-dev")
        built = []
        for name in ("mock_openai", "llmload"):
            program = directory / name
            command = [compiler, "-O2", "-o", str(program), str(_SOURCES / f"{name}.c")]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{name}.c cannot be compiled: {done.stderr[-2000:]}")
            built.append(program)
        return cls(*built)
