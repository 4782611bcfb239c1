"""The command line's HTTP client for the gateway: models of a key, state of engine hosts, routes and providers."""

import os
from collections.abc import Sequence
from pathlib import Path

import httpx

from backends.network.detail_access import find_metrics_token
from tollkeeper.own_gateway import is_https, trust

_TIMEOUT_SECONDS = 5.0


def metrics_token(data: Path) -> str:
    """Return the token that shows details on this installation's status pages; "" if this user has none."""
    return find_metrics_token(os.environ.get("TOLLKEEPER_METRICS_TOKEN", ""), data)


async def first_model(gateway: str, key: str, preferred: Sequence[str] = ()) -> str | None:
    """Return a model that this key may use: the first allowed one of `preferred`, else any.

    `None` if the gateway refuses the key or the key may use no model.
    """
    # Ignores proxy variables: gateway and key belong to this installation.
    async with _open(gateway) as client:
        try:
            reply = await client.get(f"{gateway}/v1/models", headers={"Authorization": f"Bearer {key}"})
            names = [str(model["id"]) for model in reply.json()["data"]] if reply.status_code == 200 else []
            return next((name for name in (*preferred, *names) if name in names), None)
        except (httpx.HTTPError, ValueError, LookupError):
            return None


async def engine_states(gateway: str, token: str = "") -> dict[str, str]:
    """Return the state of each engine host by name; {} if the gateway does not report it."""
    async with _open(gateway) as client:
        try:
            engines = (await client.get(f"{gateway}/ready", headers=_shown(token))).json()["engines"]
            return {str(name): str(engine["state"]) for name, engine in engines.items()}
        except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError):
            return {}


async def route_states(gateway: str, token: str = "") -> dict[str, str] | None:
    """Return the state of each semantic route (ready, loading, unavailable); `None` if the gateway does not answer."""
    async with _open(gateway) as client:
        try:
            routes = (await client.get(f"{gateway}/ready", headers=_shown(token))).json()["semantic"]["routes"]
            return {str(name): str(route["state"]) for name, route in routes.items()}
        except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError):
            return None


async def needs_provider_host(gateway: str, token: str = "") -> bool | None:
    """Return whether a target needs the provider host; `None` if the gateway does not report it."""
    async with _open(gateway) as client:
        try:
            return (await client.get(f"{gateway}/ready", headers=_shown(token))).json()["provider_host"] is not None
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return None


def _open(gateway: str) -> httpx.AsyncClient:
    # Loading the system's CA certificates takes 25 ms of CPU time; it is not needed without TLS.
    verify = trust(gateway) or is_https(gateway)
    return httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False, verify=verify)


def _shown(token: str) -> dict[str, str]:
    """Return the headers with the metrics token; without it a gateway on another machine reports only its status."""
    return {"Authorization": f"Bearer {token}"} if token else {}
