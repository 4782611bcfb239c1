"""The embedded store answers programs: it has no pages, and grants no preflight of a web page's."""

from typing import Any

import httpx
import pytest


@pytest.mark.parametrize("path", ["/play", "/dashboard", "/merges", "/binary", "/js/uplot.js"])
def test_it_serves_no_pages(store: Any, path: str) -> None:
    answer = httpx.get(f"{store.address('reader').url}{path}", trust_env=False)
    assert answer.status_code == 404 and "html" not in answer.headers.get("content-type", "")


def test_a_preflight_of_another_origin_is_not_granted(store: Any) -> None:
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-clickhouse-user"}
    preflight = httpx.options(
        store.address("reader").url, headers={"Origin": "http://evil.example", **asking}, trust_env=False
    )
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_a_plain_answer_is_for_no_other_origin(store: Any) -> None:
    address = store.address("reader")
    shown = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": address.password}
    for more, query in (({}, "SELECT 1"), (shown, "SELECT 1"), (shown, "SELECT nonsense")):
        headers = {"Origin": "http://evil.example", **more}
        answer = httpx.get(address.url, params={"query": query}, headers=headers, trust_env=False)
        assert not [name for name in answer.headers if name.startswith("access-control")], query
    answer = httpx.get(address.url + "/ping", headers={"Origin": "http://evil.example"}, trust_env=False)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8123", "127.0.0.1.evil.example", "localhost.evil"])
def test_another_name_is_refused(store: Any, host: str) -> None:
    address = store.address("reader")
    shown = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": address.password, "Host": host}
    for path, status in (("/", 404), ("/ping", 404)):
        answer = httpx.get(address.url + path, params={"query": "SELECT 1"}, headers=shown, trust_env=False)
        assert answer.status_code == status


@pytest.mark.parametrize("host", ["localhost:8123", "LOCALHOST", "127.0.0.1", "[::1]:8123"])
def test_names_of_this_machine_are_answered(store: Any, host: str) -> None:
    address = store.address("reader")
    shown = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": address.password, "Host": host}
    answer = httpx.get(address.url, params={"query": "SELECT 1"}, headers=shown, trust_env=False)
    assert (answer.status_code, answer.text) == (200, "1\n")
