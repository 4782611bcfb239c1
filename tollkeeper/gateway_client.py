"""The command line's side of the data plane: whether a key works, and what it may use."""

import httpx

_TIMEOUT_SECONDS = 5.0


async def first_model(gateway: str, key: str) -> str | None:
    """Name a model that this key may use; `None` where the gateway refuses the key or serves it nothing."""
    # No proxy from the environment: the gateway is ours, and so is the key.
    async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as client:
        try:
            reply = await client.get(f"{gateway}/v1/models", headers={"Authorization": f"Bearer {key}"})
            return str(reply.json()["data"][0]["id"]) if reply.status_code == 200 else None
        except (httpx.HTTPError, ValueError, LookupError):
            return None
