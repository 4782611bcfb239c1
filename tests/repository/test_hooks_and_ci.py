"""The commit hooks and the CI workflow run what the repository defines, in the versions that it pins."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
HOOKS: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())


def test_ci_runs_on_every_python_that_the_project_allows() -> None:
    allowed = SpecifierSet(PROJECT["requires-python"])
    every = {f"3.{minor}" for minor in range(8, 30) if f"3.{minor}.0" in allowed}
    assert set(WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]) == every


def test_ci_runs_the_repository_s_own_script_and_pinned_actions_alone() -> None:
    steps = WORKFLOW["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    used = [step["uses"] for step in steps if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action) for action in used)
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_every_hook_is_a_pinned_tool_of_the_environment() -> None:
    tools = {Requirement(one).name for one in PROJECT["optional-dependencies"]["dev"]}
    hooks = [hook for repository in HOOKS["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in HOOKS["repos"]} == {"local"}, "nothing is downloaded"
    assert [hook["entry"].split()[0] for hook in hooks] == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]
    assert {"ruff", "mypy"} <= tools and {hook["language"] for hook in hooks} == {"system"}
