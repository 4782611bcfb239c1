"""An outage played through in virtual time: who answers, what is lost, when all is as before."""

import asyncio
import json
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from contracts.errors import ConfigurationError
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import Snapshot
from gateway.config.file import FileSource
from gateway.routing.drill.drill import DrillPlan, play
from gateway.routing.drill.virtual_time import run_at_once
from tollkeeper.cli import app

OUTAGE = {"failures_in_a_row": 5, "good_probes": 2}
PLAYBOOK = {"provider": "far", "then": ["own", "near"], "outage": OUTAGE}


def target(name, provider):
    url = "http://127.0.0.1:1/v1"
    settings = {"timeouts": {"first_token": 5}}
    return {"name": name, "kind": "openai_http", "url": url, "provider": provider, "settings": settings}


def written(tmp_path, **more):
    config = {
        "keys": [{"key": "env:NOT_SET", "tenant": "acme"}],
        "pools": [
            {"name": "far", "targets": [target("f1", "far"), target("f2", "far")]},
            {"name": "near", "targets": [target("n", "near")]},
            {"name": "own", "targets": [target("o", "own")]},
            {"name": "mixed", "targets": [target("m1", "far"), target("m2", "own")]},
        ],
        "models": [{"name": name, "pool": name} for name in ("far", "near", "own", "mixed")],
        "routes": [{"name": "best", "choose": [{"model": "far"}], "fallbacks": [{"model": "near"}, {"model": "own"}]}],
        **more,
    }
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def played(path: Path, **plan):
    source = FileSource(path, b"")
    serving = source.serving()
    snapshot = Snapshot(
        0, {}, serving.models, serving.pools, PriceBook(), routes=serving.routes, playbooks=source.playbooks()
    )
    report = run_at_once(
        play(snapshot, DrillPlan("far", outage_seconds=40, after_seconds=50, requests_per_second=2, **plan))
    )
    return report, {one.name: one for one in report.names}


@pytest.mark.parametrize("fault", ["refused", "error", "limited", "stall"])
def test_no_request_is_lost_where_another_provider_serves_the_name(tmp_path, fault):
    report, names = played(written(tmp_path, playbooks=[PLAYBOOK]), fault=fault)
    assert set(names) == {"far", "mixed", "best"}, "names that the provider does not serve are not asked"
    assert names["mixed"].failed == names["best"].failed == 0
    assert sum(names["best"].answered_by.values()) == names["best"].requests == 80
    assert not names["far"].has_others and names["far"].failed
    assert report.is_passed and report.back_after_seconds is not None


def test_a_pools_bound_on_first_tokens_holds_in_a_drill(tmp_path):
    pools = [
        {"name": "far", "targets": [target("f1", "far"), target("f2", "far")], "failures": {"first_token_seconds": 1}},
        {"name": "near", "targets": [target("n", "near")]},
        {"name": "own", "targets": [target("o", "own")]},
        {"name": "mixed", "targets": [target("m1", "far"), target("m2", "own")]},
    ]
    bound, bound_names = played(written(tmp_path, pools=pools), fault="stall")
    _, plain_names = played(written(tmp_path), fault="stall")
    assert bound.is_passed
    assert bound_names["best"].worst_seconds + 3 < plain_names["best"].worst_seconds


def test_the_playbook_says_who_answers_meanwhile(tmp_path):
    _, without = played(written(tmp_path), fault="error")
    _, by_the_book = played(written(tmp_path, playbooks=[PLAYBOOK]), fault="error")
    assert without["best"].answered_by.most_common(1)[0][0] == "near"
    assert by_the_book["best"].answered_by.most_common(1)[0][0] == "own"


def test_a_ramp_takes_as_long_as_it_says(tmp_path):
    ramp = {**PLAYBOOK, "outage": {**OUTAGE, "ramp_seconds": 20}}
    quick, _ = played(written(tmp_path, playbooks=[PLAYBOOK]), fault="error")
    slow, _ = played(written(tmp_path, playbooks=[ramp]), fault="error")
    assert 19 <= slow.back_after_seconds - quick.back_after_seconds <= 32


def test_without_another_provider_the_drill_is_not_passed(tmp_path):
    path = written(tmp_path, models=[{"name": "far", "pool": "far"}], routes=[])
    report, names = played(path, fault="refused")
    assert not report.is_passed and names["far"].failed == names["far"].requests


def test_a_provider_that_nobody_knows_is_named_with_those_that_are(tmp_path):
    with pytest.raises(ConfigurationError, match="of provider 'elsewhere'; known: far, near, own"):
        source = FileSource(written(tmp_path), b"")
        serving = source.serving()
        run_at_once(play(Snapshot(0, {}, serving.models, serving.pools, PriceBook()), DrillPlan("elsewhere")))


def test_the_command_prints_what_would_happen_and_ends_by_it(tmp_path):
    path = written(tmp_path, playbooks=[PLAYBOOK])
    told = CliRunner().invoke(
        app, ["routes", "drill", "far", "--config", str(path), "--rate", "1", "--seconds", "20", "--json"]
    )
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report["passed"] and {name["name"] for name in report["names"]} == {"far", "mixed", "best"}
    shown = CliRunner().invoke(app, ["routes", "drill", "far", "--config", str(path), "--rate", "1", "--seconds", "20"])
    assert "its circuit opens after" in shown.stdout and "no other provider serves it" in " ".join(shown.stdout.split())
    wrong = CliRunner().invoke(app, ["routes", "drill", "far", "--config", str(path), "--fault", "flood"])
    assert wrong.exit_code == 2


def test_virtual_time_passes_in_order_and_at_once():
    async def sleepers():
        order = []

        async def sleep(seconds):
            await asyncio.sleep(seconds)
            order.append((seconds, round(asyncio.get_running_loop().time())))

        await asyncio.gather(sleep(3600), sleep(1), sleep(60))
        return order

    began = time.monotonic()
    assert run_at_once(sleepers()) == [(1, 1), (60, 60), (3600, 3600)]
    assert time.monotonic() - began < 5
