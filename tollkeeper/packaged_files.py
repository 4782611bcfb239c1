"""Files that are no code: at their places in a checkout, below `tollkeeper/files` in an installed wheel."""

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
INSTALLED: Final = "tollkeeper/files"  # below the packages of an installed wheel

# What a wheel holds besides the packages, by its path in a checkout (`tollkeeper.supply.wheel` puts it there).
PACKAGED: Final = (
    ".env.example",
    "bench/traces/azure_llm_2023",
    "constraints",
    "deploy/clickhouse",
    "deploy/grafana",
)


def is_wheel(root: Path = ROOT) -> bool:
    """Return whether the code runs from an installed wheel, not from a checkout."""
    return (root / INSTALLED).is_dir()


def packaged_file(path: str, root: Path = ROOT) -> Path:
    """Return where a file is that is named by its path in a checkout. It may be missing."""
    return root / INSTALLED / path if is_wheel(root) else root / path


def environments_folder(root: Path = ROOT) -> Path:
    """Return where virtual environments of other processes belong: beside a checkout's code, else in our own."""
    return Path(sys.prefix) if is_wheel(root) else root
