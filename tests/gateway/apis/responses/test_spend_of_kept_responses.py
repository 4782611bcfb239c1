"""A response that is kept is written to a database before its end is sent; what it cost is on the books before that."""

import shutil

import pytest

from backends.objects.responses import ResponseStore

MODEL = "mock"


@pytest.mark.parametrize("is_killed_then", [True, False], ids=["killed while it is kept", "killed later"])
async def test_totals_written_while_a_response_is_kept_count_it_once_after_a_kill(
    start_gateway, kit, upstream, tmp_path, monkeypatch, is_killed_then
):
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=9)))
    budgets = [{"tenant": "acme", "period": "month", "amount_usd": "100", "level": "tenant"}]
    configuration = kit.configuration((MODEL, [kit.http_target(upstream.url)]), budgets=budgets)
    gateway = await start_gateway(configuration)
    adds, data, left = ResponseStore.add, gateway.gateway._settings.data, tmp_path / "killed"

    def kill() -> None:
        shutil.copytree(data, left, ignore=shutil.ignore_patterns("*lock"))

    async def add_while_totals_are_written(store, stored):
        gateway.gateway.ledger.flush()
        if is_killed_then:
            kill()
        await adds(store, stored)

    monkeypatch.setattr(ResponseStore, "add", add_while_totals_are_written)
    await gateway.sdk().responses.create(model=MODEL, input="Hello")
    if not is_killed_then:
        kill()
    spent = [counter.settled for counter in gateway.gateway.counters.budgets()]
    restarted = await start_gateway(configuration, data=left)
    assert [counter.settled for counter in restarted.gateway.counters.budgets()] == spent
    assert spent[0] > 0
    assert len(restarted.requests()) == 1
