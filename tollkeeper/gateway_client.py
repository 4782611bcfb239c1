"""The command line's side of the data plane: whether a key works, what it may use, how the hosts are."""

import os
from collections.abc import Sequence
from pathlib import Path

import httpx

from backends.network.detail_access import find_metrics_token
from tollkeeper.own_gateway import trust

_TIMEOUT_SECONDS = 5.0


def metrics_token(data: Path) -> str:
    """Return what to show to this installation's processes for details; "" if this user knows none."""
    return find_metrics_token(os.environ.get("TOLLKEEPER_METRICS_TOKEN", ""), data)


async def first_model(gateway: str, key: str, preferred: Sequence[str] = ()) -> str | None:
    """Return a model that this key may use, the first preferred one if it may use any of those.

    `None` if the gateway refuses the key or serves it nothing.
    """
    # No proxy from the environment: the gateway is ours, and so is the key.
    async with _open(gateway) as client:
        try:
            reply = await client.get(f"{gateway}/v1/models", headers={"Authorization": f"Bearer {key}"})
            names = [str(model["id"]) for model in reply.json()["data"]] if reply.status_code == 200 else []
            return next((name for name in (*preferred, *names) if name in names), None)
        except (httpx.HTTPError, ValueError, LookupError):
            return None


async def engine_states(gateway: str, token: str = "") -> dict[str, str]:
    """Return how each engine host is that the gateway knows, by its name; nothing if the gateway does not say."""
    async with _open(gateway) as client:
        try:
            engines = (await client.get(f"{gateway}/ready", headers=_shown(token))).json()["engines"]
            return {str(name): str(engine["state"]) for name, engine in engines.items()}
        except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError):
            return {}


async def route_states(gateway: str, token: str = "") -> dict[str, str] | None:
    """Return by route whether it reads prompts yet, for semantic routes; `None` if the gateway does not answer."""
    async with _open(gateway) as client:
        try:
            routes = (await client.get(f"{gateway}/ready", headers=_shown(token))).json()["semantic"]["routes"]
            return {str(name): str(route["state"]) for name, route in routes.items()}
        except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError):
            return None


async def needs_provider_host(gateway: str, token: str = "") -> bool | None:
    """Return whether a target needs the provider host; `None` if the gateway does not say."""
    async with _open(gateway) as client:
        try:
            return (await client.get(f"{gateway}/ready", headers=_shown(token))).json()["provider_host"] is not None
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return None


def _open(gateway: str) -> httpx.AsyncClient:
    # Reading the system's certificates takes 25 ms of CPU time, each time; without TLS nobody looks at them.
    verify = trust(gateway) or gateway.startswith("https://")
    return httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False, verify=verify)


def _shown(token: str) -> dict[str, str]:
    """Return the headers that show the metrics token, without which a gateway elsewhere tells its status alone."""
    return {"Authorization": f"Bearer {token}"} if token else {}
