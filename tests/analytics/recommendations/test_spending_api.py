"""The analytics process on spending and scaling: each asker's own tenant, the platform's for who sees all."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient

from analytics.api import autoscaling, spending
from analytics.api.access import Caller, reader
from analytics.autoscaling.signals import ModelSignals
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError

PATHS = ("/v1/spending/forecast", "/v1/spending/anomalies", "/v1/spending/savings")


def refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TollkeeperError)
    return JSONResponse({"code": error.code}, 400)


class NoCards:
    """A control database without price cards."""

    def session(self) -> Any:
        return self

    def __enter__(self) -> Any:
        return SimpleNamespace(scalars=lambda statement: [])

    def __exit__(self, *_: object) -> None:
        return None


def client_of(asker: Caller, store: StoreClient) -> TestClient:
    app = FastAPI()
    app.include_router(spending.router)
    app.include_router(autoscaling.router)
    app.dependency_overrides[reader] = lambda: asker
    app.add_exception_handler(TollkeeperError, refused)
    app.state.stores = SimpleNamespace(lent=lambda: nullcontext(store))
    app.state.database = NoCards()
    app.state.detail_access = SimpleNamespace(has_token=lambda authorization: False)
    app.state.callers = SimpleNamespace(caller_of=lambda credentials: asker)
    app.state.signals = SimpleNamespace(read=lambda: {"m": ModelSignals("m", 1, 2, 3, None, 0.5, None)})
    return TestClient(app)


@pytest.mark.parametrize("path", PATHS)
def test_a_tenant_without_history_has_no_entries_and_anothers_is_not_there(reader: StoreClient, path: str) -> None:
    own = client_of(Caller("a", "tenant-of-nothing"), reader)
    assert own.get(path).json() == {"data": []}
    assert own.get(path, params={"tenant": "another"}).json() == {"code": "not_found"}
    assert client_of(Caller("l", "tenant-of-nothing", "team"), reader).get(path).json() == {"code": "permission_denied"}


@pytest.mark.parametrize("day", ["0001-01-01", "1999-12-31", "2100-01-02", "9999-12-31"])
def test_a_day_that_the_store_cannot_count_is_refused(reader: StoreClient, day: str) -> None:
    reply = client_of(Caller("owner"), reader).get("/v1/spending/anomalies", params={"day": day})
    assert reply.status_code == 422, "FastAPI's own refusal; the process words it as all others"


def test_engines_are_shown_to_who_sees_all_tenants(reader: StoreClient) -> None:
    page = client_of(Caller("owner"), reader).get("/metrics")
    assert page.headers["content-type"].startswith("text/plain") and 'queue_requests{model="m"} 2.0' in page.text
    assert client_of(Caller("a", "acme"), reader).get("/metrics").json() == {"code": "permission_denied"}
