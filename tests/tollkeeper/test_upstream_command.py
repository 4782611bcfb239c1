"""`tollkeeper upstream add` against a real control plane."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tollkeeper.cli import app

URL = ("--url", "http://127.0.0.1:9/v1")


def run(data: Path, *arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data", str(data)], env=environment)


def rows(data: Path, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(data, *arguments, "--json").stdout)
    return found


def test_one_command_adds_pool_target_model_key_and_price(data: Path) -> None:
    added = run(
        data, "upstream", "add", "Llama-3.1", *URL, "--api-key-env", "MY_KEY", "--price", "0.2", "0.6", MY_KEY="sk-1"
    )
    assert added.exit_code == 0, added.output
    assert "pool llama-3-1" in added.stdout and "input 0.2, output 0.6" in added.stdout and "sk-1" not in added.output
    (target,) = rows(data, "targets", "list", "--pool", "llama-3-1")
    assert (target["url"], target["model"], target["key_ref"]) == (URL[1], "Llama-3.1", "stored:llama-3-1")
    (price,) = [one for one in rows(data, "prices", "list") if one["model"] == "Llama-3.1"]
    assert price["card"]["usd_per_mtok"]["output_reasoning"] == "0.6"
    again = run(data, "upstream", "add", "Llama-3.1", *URL, "--key-ref", "stored:llama-3-1", "--price", "0.2", "0.6")
    assert again.exit_code == 0 and "nothing to change" in again.stdout


def test_a_price_is_found_in_the_built_in_list_by_the_host_of_the_url(data: Path) -> None:
    added = run(data, "upstream", "add", "fast", "--url", "https://api.openai.com/v1", "--model", "gpt-4o-mini")
    assert added.exit_code == 0, added.output
    assert "input 0.15, output 0.6 (price list" in added.stdout
    (target,) = rows(data, "targets", "list", "--pool", "fast")
    assert (target["provider"], target["model"]) == ("openai", "gpt-4o-mini")


def test_another_price_replaces_the_one_that_holds(data: Path) -> None:
    for prices in (("1", "2"), ("3", "4")):
        assert run(data, "upstream", "add", "m", *URL, "--price", *prices).exit_code == 0
    cards = {one["version"]: one for one in rows(data, "prices", "list") if one["model"] == "m"}
    assert cards["m/1"]["valid_to"] == cards["m/2"]["valid_from"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("m", *URL), "give --price INPUT OUTPUT"),
        (("m",), "give --url"),
        (("m", *URL, "--price", "a", "1"), "'a' is not a number"),
        (("m", *URL, "--price", "-1", "1"), "must be 0 or more"),
        (("m", *URL, "--price", "1e7", "1"), "usd_per_mtok.input_text is 10000000: it must be at most 1000000"),
        (("m", *URL, "--price", "1", "1", "--price-from-catalogue"), "contradict"),
        (("m", *URL, "--price", "1", "1", "--api-key-env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
        (("no-such-model-x", "--url", "https://api.openai.com/v1"), "give --price INPUT OUTPUT"),
        (("m", "--url", "ftp://x", "--price", "1", "1"), "url"),
    ],
)
def test_what_is_refused_adds_nothing(data: Path, arguments: tuple[str, ...], said: str) -> None:
    refused = run(data, "upstream", "add", *arguments)
    assert refused.exit_code == 2 and said in refused.stderr.replace("\n", " "), refused.output
    assert [pool["id"] for pool in rows(data, "pools", "list")] == ["demo"]
