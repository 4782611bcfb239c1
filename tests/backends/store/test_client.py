"""The store's client against a real store: values, failures, and coming back after them."""

import socket
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest

from backends.store.client import StoreClient
from contracts.errors import ConfigurationError, StoreRefused, StoreUnavailable


def test_parameters_are_bound_by_the_server(store: Any) -> None:
    client = store.client("reader")
    hostile = "'; DROP TABLE requests; --"
    rows = client.query("SELECT {text:String} AS text, {items:Array(UInt8)} AS items", {"text": hostile, "items": [1]})
    assert rows == [{"text": hostile, "items": [1]}]
    client.close()


def test_times_come_back_in_utc(store: Any) -> None:
    client = store.client("reader")
    moment = datetime(2026, 11, 3, 12, 30, tzinfo=UTC)
    sql = "SELECT toDateTime({unix:UInt32}, 'UTC') AS second, toDateTime64({unix:UInt32}, 9, 'UTC') AS nanosecond"
    rows = client.query(sql, {"unix": int(moment.timestamp())})
    assert rows == [{"second": moment, "nanosecond": moment}]
    assert all(value.utcoffset() is not None for value in rows[0].values())
    client.close()


def test_a_result_comes_as_a_frame(store: Any) -> None:
    client = store.client("reader")
    frame = client.query_frame("SELECT number AS n FROM numbers(3)")
    assert frame["n"].tolist() == [0, 1, 2]
    empty = client.query_frame("SELECT tenant, cost_usd FROM requests WHERE tenant = {t:String}", {"t": "nobody"})
    assert list(empty.columns) == ["tenant", "cost_usd"] and empty.empty
    client.close()


def test_settings_apply_to_one_query(store: Any) -> None:
    client = store.client("reader")
    sql = "SELECT sum(sleepEachRow(0.2)) FROM numbers(10)"
    with pytest.raises(StoreUnavailable, match="time limit"):
        client.query(sql, settings={"max_execution_time": 0.1, "max_block_size": 1})
    assert client.query("SELECT 1 AS one") == [{"one": 1}]
    client.close()


def test_a_store_that_is_down_is_unavailable_and_works_again_when_it_is_back(migrated_store: Any) -> None:
    client = migrated_store.client("writer")
    assert client.ping() is False
    with pytest.raises(StoreUnavailable, match="does not answer"):
        client.query("SELECT 1")
    migrated_store.start()
    assert client.ping() is True
    assert client.query("SELECT 1 AS one") == [{"one": 1}]
    migrated_store.kill()
    with pytest.raises(StoreUnavailable):
        client.query("SELECT 1")
    batch = pyarrow.table({"kind": ["test"], "value": ["after"]})
    with pytest.raises(StoreUnavailable):
        client.insert_arrow("distinct_values", batch, deduplication_token="token")
    migrated_store.start()
    client.insert_arrow("distinct_values", batch, deduplication_token="token")
    assert client.query("SELECT value FROM distinct_values WHERE kind = 'test'") == [{"value": "after"}]
    client.close()


def test_errors_tell_what_to_do_and_show_no_values(store: Any) -> None:
    client = store.client("writer")
    with pytest.raises(StoreRefused, match=r"code 47, UNKNOWN_IDENTIFIER") as refused:
        client.query("SELECT sesame_secret FROM requests")
    assert "sesame" not in refused.value.message
    with pytest.raises(ConfigurationError, match="python -m migrations"):
        client.query("SELECT * FROM no_such_table")
    with pytest.raises(StoreRefused):
        client.insert_arrow("requests", pyarrow.table({"request_id": ["not an id"]}), deduplication_token="bad")
    client.close()


@pytest.mark.parametrize("code", [75, 76, 173, 243, 1001])  # file not written or opened, no memory, no disk, C++
def test_a_server_that_fails_itself_is_unavailable_and_blames_no_data(store: Any, code: int) -> None:
    client = store.client("reader")
    custom = {"allow_custom_error_code_in_throwif": 1}
    with pytest.raises(StoreUnavailable, match=rf"code {code}\b"):
        client.query("SELECT throwIf(1, 'as if', {code:Int16})", {"code": code}, settings=custom)
    client.close()


def test_a_missing_database_says_to_migrate(store: Any) -> None:
    client = StoreClient(replace(store.address(), database="elsewhere"))
    with pytest.raises((ConfigurationError, StoreRefused)):
        client.query("SELECT 1")
    client.close()


def test_a_wrong_password_is_a_configuration_error_without_the_password(store: Any) -> None:
    client = StoreClient(replace(store.address("reader"), password="hunter2"))
    with pytest.raises(ConfigurationError, match="refuses user 'reader'") as refused:
        client.query("SELECT 1")
    assert "hunter2" not in refused.value.message
    client.close()


def test_another_process_than_the_store_is_unavailable(free_ports: Any, store: Any) -> None:
    (port,) = free_ports(1)
    client = StoreClient(replace(store.address(), url=f"http://127.0.0.1:{port}"))
    with pytest.raises(StoreUnavailable, match=f"http://127.0.0.1:{port} does not answer"):
        client.command("SELECT 1")
    client.close()


def test_a_store_that_accepts_and_never_answers_is_unavailable_however_long_queries_may_take(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.store.client._FIRST_ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = StoreClient(replace(store.address(), url=url), answer_seconds=3600)
        assert client.ping() is False
        with pytest.raises(StoreUnavailable, match=f"{url} does not answer"):
            client.query("SELECT 1")
        client.close()
