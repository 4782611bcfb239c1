"""Every direct dependency has a reason beside it and an exact version known to work with the others."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "pyproject.toml"
CONSTRAINTS = ROOT / "constraints"


def direct_requirements() -> list[str]:
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    every = project["dependencies"] + extras
    return sorted({requirement for requirement in every if Requirement(requirement).name != project["name"]})


def pins(path: Path) -> dict[str, str]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    requirements = [line for line in lines if line and not line.startswith("#")]
    pinned = dict(line.split("==") for line in requirements)
    return {canonicalize_name(name): version for name, version in pinned.items()}


@pytest.mark.parametrize("requirement", direct_requirements())
def test_every_mention_of_a_dependency_says_why(requirement: str) -> None:
    mentions = [line for line in PROJECT.read_text().splitlines() if line.strip().startswith(f'"{requirement}",')]
    assert mentions, f"{requirement} does not stand on a line of its own"
    for line in mentions:
        assert re.search(r"#\s*\S+.*\S", line), f"no reason beside it: {line.strip()}"


@pytest.mark.parametrize("requirement", direct_requirements())
def test_every_dependency_has_an_exact_version(requirement: str) -> None:
    wanted = Requirement(requirement)
    base = pins(CONSTRAINTS / "base.txt")
    name = canonicalize_name(wanted.name)
    assert name in base, f"constraints/base.txt does not pin {wanted.name}"
    assert wanted.specifier.contains(base[name])


def test_the_build_backend_is_the_pinned_one() -> None:
    requires = tomllib.loads(PROJECT.read_text())["build-system"]["requires"]
    assert requires == [f"hatchling=={pins(CONSTRAINTS / 'base.txt')['hatchling']}"]


@pytest.mark.parametrize("path", sorted(CONSTRAINTS.glob("*.txt")), ids=lambda path: path.name)
def test_constraints_hold_names_and_exact_versions_only(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# "), "a constraints file says first what it is for"
    for line in lines:
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line), line
        assert "://" not in line, f"a host's name has no place here: {line}"


def test_no_version_is_given_twice() -> None:
    for path in CONSTRAINTS.glob("*.txt"):
        names = [
            line.split("==")[0].lower() for line in path.read_text().splitlines() if "==" in line and line[0] != "#"
        ]
        assert len(names) == len(set(names)), path.name


def test_the_environments_that_cannot_share_ours_are_not_pinned_in_it() -> None:
    base = pins(CONSTRAINTS / "base.txt")
    assert not {"vllm", "litellm"} & set(base)


def test_a_vllm_host_s_environment_is_listed_whole() -> None:
    """It is installed without resolving anything: vLLM, what it brings in, and what our own code in it imports."""
    listed = set(pins(CONSTRAINTS / "vllm.txt"))
    assert {"vllm", "torch", "transformers", "triton", "xgrammar", "llguidance", "pyzmq"} <= listed
    assert {"msgspec", "pydantic-settings", "uvloop", "tokenizers", "jinja2", "numpy"} <= listed


def test_a_provider_host_s_environment_is_listed_whole() -> None:
    """It is installed without resolving anything: LiteLLM, and what our own code in it imports."""
    assert {"litellm", "openai", "boto3", "google-auth", "msgspec", "pydantic-settings", "uvloop"} <= set(
        pins(CONSTRAINTS / "providers.txt")
    )


def test_the_project_cannot_be_uploaded_by_accident() -> None:
    assert "Private :: Do Not Upload" in tomllib.loads(PROJECT.read_text())["project"]["classifiers"]
