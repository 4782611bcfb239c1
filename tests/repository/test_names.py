"""Our top-level packages have plain names, so nothing installed may claim one of them."""

import importlib.metadata
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUR_DISTRIBUTION = "tollkeeper"


def packaged_names() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


def our_names() -> list[str]:
    return [*packaged_names(), "bench", "tests"]


def foreign_owners(owners: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    claimed = {name: set(owners.get(name, ())) - {OUR_DISTRIBUTION} for name in our_names()}
    return {name: others for name, others in claimed.items() if others}


def test_no_installed_distribution_has_one_of_our_names() -> None:
    assert foreign_owners(importlib.metadata.packages_distributions()) == {}


def test_a_distribution_with_one_of_our_names_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "analytics").mkdir()
    (tmp_path / "analytics" / "__init__.py").touch()
    info = tmp_path / "analytics_python-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: analytics-python\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("analytics\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert foreign_owners(importlib.metadata.packages_distributions()) == {"analytics": {"analytics-python"}}


def test_no_name_of_ours_hides_a_module_of_the_standard_library() -> None:
    assert set(our_names()) & set(sys.stdlib_module_names) == set()


def test_every_package_at_the_root_is_known_to_the_build_or_stands_outside_it() -> None:
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert found - {"bench"} == set(packaged_names())


def test_import_linter_watches_every_package_that_is_built() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["importlinter"]["root_packages"]) == set(packaged_names())
