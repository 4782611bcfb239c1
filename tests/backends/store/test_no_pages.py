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
