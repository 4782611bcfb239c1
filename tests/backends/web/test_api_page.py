"""The page of an API's operations: all of them, escaped, and nothing from another server."""

import re

from fastapi import FastAPI
from fastapi.testclient import TestClient

from backends.web.api_page import install_api_page


def test_it_lists_operations_and_loads_nothing() -> None:
    app = FastAPI(title="A <b>title</b>", description="Errors & <script>", docs_url=None, redoc_url=None)
    install_api_page(app)

    @app.get("/v1/things/{thing}", summary="One <thing>", tags=["things"])
    def thing(thing: str, since: int = 0) -> dict[str, str]:
        return {}

    @app.post("/v1/things", tags=["things"])
    def add(body: dict[str, str]) -> dict[str, str]:
        return {}

    with TestClient(app) as client:
        answer = client.get("/docs")
        for path in ("/redoc", "/docs/oauth2-redirect"):
            assert client.get(path).status_code == 404
        assert "/docs" not in client.get("/openapi.json").json()["paths"]
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert (
        "<script" not in answer.text and "<b>" not in answer.text and not re.search(r"(src|href)=\"?\w+:", answer.text)
    )
    for shown in ("/v1/things/{thing}", "One &lt;thing&gt;", "<code>since</code>", "POST", "JSON body", "openapi.json"):
        assert shown in answer.text
