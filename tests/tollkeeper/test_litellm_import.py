"""`tollkeeper import litellm`: what is carried over, and what is listed because it cannot be."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.access.keys import is_well_formed
from tollkeeper.cli import app

CONFIG = """\
model_list:
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY, rpm: 100}
    model_info: {input_cost_per_token: 0.0000025, output_cost_per_token: 0.00001}
  - model_name: gpt-4o
    litellm_params: {model: azure/gpt-4o-eu, api_base: https://eu.example, api_key: sk-in-the-file}
  - model_name: llama
    litellm_params: {model: hosted_vllm/llama-3, api_base: http://10.0.0.5:8000/v1, input_cost_per_token: 1e-7}
  - model_name: "anthropic/*"
    litellm_params: {model: "anthropic/*"}
router_settings:
  routing_strategy: least-busy
  fallbacks: [{llama: [gpt-4o]}]
litellm_settings:
  max_budget: 500
  budget_duration: 30d
  success_callback: [langfuse]
general_settings:
  master_key: os.environ/MASTER
"""
KEYS = {
    "keys": [
        {
            "token": "0" * 64,
            "key_alias": "shop",
            "team_id": "t-1",
            "models": ["llama"],
            "max_budget": 20,
            "budget_duration": "30d",
            "tpm_limit": 5000,
        }
    ],
    "teams": [{"team_id": "t-1", "team_alias": "Web shop", "max_budget": 90, "budget_duration": "7d"}],
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    config, keys = tmp_path / "config.yaml", tmp_path / "keys.json"
    config.write_text(CONFIG)
    keys.write_text(json.dumps(KEYS))
    return str(config), str(keys)


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data", str(data)])


def test_models_prices_teams_keys_and_budgets_are_carried_over(data: Path, files: tuple[str, str]) -> None:
    config, keys = files
    planned = run(data, "import", "litellm", config, "--keys", keys, "--tenant", "acme", "--dry-run")
    assert planned.exit_code == 0, planned.output
    done = run(data, "import", "litellm", config, "--keys", keys, "--tenant", "acme")
    assert done.exit_code == 0, done.output
    secret = next(line.split()[0] for line in done.stdout.splitlines() if line.startswith("tk-"))
    assert is_well_formed(secret)

    exported = json.loads(run(data, "export", "--json").stdout)
    pools = {pool["name"]: pool for pool in exported["pools"]}
    assert pools["gpt-4o"]["policy"] == "least_outstanding"
    first, second = pools["gpt-4o"]["targets"]
    assert (first["kind"], first["model"], first["key"]) == ("litellm", "openai/gpt-4o", "env:OPENAI_API_KEY")
    assert (second["provider"], "key" in second) == ("azure", False)
    assert pools["llama"]["targets"][0] | {"name": ""} == {
        "name": "",
        "kind": "openai_http",
        "url": "http://10.0.0.5:8000/v1",
        "model": "llama-3",
    }
    (route,) = exported["routes"]
    assert (route["name"], route["choose"], route["fallbacks"]) == (
        "llama",
        [{"model": "llama-only"}],
        [{"model": "gpt-4o"}],
    )
    prices = {price["model"]: price["usd_per_mtok"] for price in exported["prices"]}
    assert prices["gpt-4o"] == {"input_text": "2.5", "output_text": "10"}
    (key,) = [key for key in exported["keys"] if key["tenant"] == "acme"]
    assert (key["name"], key["team"], key["models"]) == ("shop", "web-shop", ["llama"])
    budgets = {
        (one.get("level", "tenant"), one.get("subject", "")): (one["period"], one["amount_usd"])
        for one in exported["budgets"]
    }
    assert budgets == {
        ("tenant", ""): ("month", "500"),
        ("team", "web-shop"): ("week", "90"),
        ("key", key["id"]): ("month", "20"),
    }
    assert [limit["amount"] for limit in exported["limits"]] == [5000]


def test_what_cannot_be_carried_over_is_listed(data: Path, files: tuple[str, str]) -> None:
    listed = run(data, "import", "litellm", *files[:1], "--dry-run").stderr
    for part in ("wildcard 'anthropic/*'", "api_key: a key in the file", "success_callback", "general_settings", "rpm"):
        assert part in listed, listed
    assert "sk-in-the-file" not in listed


def test_it_can_be_written_as_yaml_for_apply(data: Path, files: tuple[str, str], tmp_path: Path) -> None:
    made = tmp_path / "tollkeeper.yaml"
    assert run(data, "import", "litellm", *files[:1], "-o", str(made)).exit_code == 0
    assert run(data, "apply", "-f", str(made)).exit_code == 0
    assert run(data, "apply", "-f", str(made)).stdout == "Nothing to change.\n"


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        (
            "{model: openai/gpt-4o, input_cost_per_token: cheap}",
            "line 2: model_list.0: input_cost_per_token is 'cheap'",
        ),
        ("{model: openai/gpt-4o, weight: heavy}", "line 2: model_list.0: weight is 'heavy'; write a whole number"),
        ("{api_base: 'http://a'}", "line 2: model_list.0: needs model_name and litellm_params.model"),
    ],
)
def test_a_deployment_that_cannot_be_read_is_named_by_file_and_line(
    data: Path, tmp_path: Path, deployment: str, said: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"model_list:\n  - {{model_name: gpt-4o, litellm_params: {deployment}}}\n")
    done = CliRunner().invoke(app, ["import", "litellm", str(file), "--dry-run", "--data", str(data)])
    assert done.exit_code == 2 and f"{file}, {said}" in done.stderr


def test_another_file_is_refused(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("pools: []\n")
    refused = run(data, "import", "litellm", str(other))
    assert refused.exit_code == 2 and "no model_list" in refused.stderr
