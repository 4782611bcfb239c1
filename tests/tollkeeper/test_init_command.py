"""`tollkeeper init`: its questions, the file that they make, and what becomes of it in a control plane that runs."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from contracts.rules.alert_channels import kind_of_address
from tollkeeper.cli import app
from tollkeeper.first_setup import Answers
from tollkeeper.init_command import set_up

HOOK = "https://hooks.slack.com/services/T0/B0/secret"
URL = "http://127.0.0.1:9/v1"


def run(*arguments: str, answers: str = "", **environment: str) -> Result:
    return CliRunner().invoke(app, list(arguments), input=answers, env=environment)


def rows(data: Path, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(*arguments, "--json", "--data", str(data)).stdout)
    return found


def test_five_questions_make_a_file_that_is_applied_as_it_stands(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    answers = f"{URL}\nllama\nMY_KEY\nshop\n25\n{HOOK}\nann@acme.example\n"
    asked = run(
        "init", "--no-start", "-f", str(file), "--data", str(data), "--price", "0.2", "0.6", answers=answers, MY_KEY="s"
    )
    assert asked.exit_code == 0, asked.output
    assert asked.output.count(" of 5. ") == 5
    written = file.read_text()
    assert HOOK not in written and stat.S_IMODE((data / "alert-address").stat().st_mode) == 0o600
    assert set(yaml.safe_load(written)) == {
        *("tenants", "pools", "models", "prices", "keys", "alert_channels", "budgets"),
    }
    given = Answers(URL, "llama", "", "MY_KEY", ("0.2", "0.6"), "main", "shop", "25", HOOK, "ann@acme.example")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_KEY", "sk-upstream")
        said, key = set_up(given, file, data, "http://gateway")
    assert key.startswith("tk-") and f"export OPENAI_API_KEY={key}" in said and "sk-upstream" not in "".join(said)
    (target,) = rows(data, "targets", "list", "--pool", "llama")
    assert (target["url"], target["key_ref"]) == (URL, "stored:llama")
    (budget,) = rows(data, "budgets", "list", "--tenant", "main")
    assert (budget["amount_usd"], budget["channels"], budget["thresholds"]) == ("25", ["alerts"], [80, 100])
    assert [one["kind"] for one in rows(data, "channels", "list")] == ["slack"]
    assert [one["role"] for one in rows(data, "accounts", "list")] == ["owner"]
    again = run("apply", "-f", str(file), "--data", str(data))
    assert again.exit_code == 0 and "Nothing to change." in again.stdout
    refused = run("init", "--yes", "--no-start", "-f", str(file), "--data", str(data))
    assert refused.exit_code == 2 and "exists already" in refused.output


def test_empty_answers_are_the_built_in_model_without_budget_and_alerts(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    asked = run("init", "--no-start", "-f", str(file), "--data", str(tmp_path / "data"), answers="\n" * 5)
    assert asked.exit_code == 0, asked.output
    assert yaml.safe_load(file.read_text()) == {
        "tenants": [{"id": "main", "name": "main"}],
        "keys": [{"tenant": "main", "name": "app"}],
    }
    assert not (tmp_path / "data" / "alert-address").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--upstream", URL), "give --model"),
        (("--upstream", URL, "--model", "m"), "give --price INPUT OUTPUT"),
        (("--upstream", URL, "--model", "m", "--price", "a", "1"), "'a' is not a number"),
        (("--upstream", "/nowhere"), "neither a URL"),
        (("--budget-usd", "0"), "--budget-usd is 0; give more than 0"),
        (("--budget-usd", "much"), "'much' is not a number"),
        (("--alert", "not an address"), "one e-mail address"),
        (("--alert", "https://user:pw@hooks.example/x"), "without user and password"),
        (("--account", "ann"), "not an e-mail address"),
        (("--upstream", URL, "--model", "m", "--api-key-env", "NOT_SET"), "NOT_SET is not set"),
    ],
)
def test_an_answer_that_cannot_be_is_named_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "own.yaml"
    refused = run("init", "--yes", "--no-start", "-f", str(file), "--data", str(tmp_path / "data"), *arguments)
    assert refused.exit_code == 2 and said in " ".join(refused.output.split())
    assert not file.exists() and not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("ops@acme.example", "email"),
        (HOOK, "slack"),
        ("https://chat.googleapis.com/v1/spaces/x", "google_chat"),
        ("https://acme.webhook.office.com/x", "teams"),
        ("https://prod-1.westeurope.logic.azure.com/workflows/x", "teams"),
        ("https://evil-hooks.slack.com.example/x", "webhook"),
        ("0123456789abcdef0123456789ABCDEF", "pagerduty"),
    ],
)
def test_the_kind_of_a_channel_is_seen_from_its_address(address: str, kind: str) -> None:
    assert kind_of_address(address) == kind
