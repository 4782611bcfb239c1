"""Paths of data files: at their place in a checkout, below `tollkeeper/files` in an installed wheel."""

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
INSTALLED: Final = "tollkeeper/files"  # folder for these files in an installed wheel

# Files that a wheel contains besides packages, by their path in a checkout (added by `tollkeeper.supply.wheel`).
PACKAGED: Final = (
    ".env.example",
    "bench/traces/azure_llm_2023",
    "constraints",
    "deploy/clickhouse",
    "deploy/grafana",
)


def is_wheel(root: Path = ROOT) -> bool:
    """Return whether the code runs from an installed wheel (True) or from a checkout."""
    return (root / INSTALLED).is_dir()


def packaged_file(path: str, root: Path = ROOT) -> Path:
    """Return the path of a file, given its path in a checkout. The file may not exist."""
    return root / INSTALLED / path if is_wheel(root) else root / path


def environments_folder(root: Path = ROOT) -> Path:
    """Return the folder for other processes' virtual environments: the checkout, else this virtual environment."""
    return Path(sys.prefix) if is_wheel(root) else root
