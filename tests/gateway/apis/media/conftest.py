"""A gateway with a model for each endpoint of other media, and calls of OpenAI's SDK."""

from typing import Any

import pytest

IMAGE, WHISPER, VOICE, JUDGE = "image-1", "whisper-1", "tts-1", "omni-moderation-latest"
PICO = 10**12
SOUND = b"RIFF" + bytes(range(256)) * 40  # of any bytes: a boundary is found by the form alone
CARDS: list[dict[str, Any]] = [
    {
        "model": IMAGE,
        "version": "i/1",
        "usd_per_unit": {"image": "0.04", "image.hd": "0.08", "image.hd.1792x1024": "0.12"},
    },
    {"model": WHISPER, "version": "w/1", "usd_per_unit": {"second": "0.0001"}},
    {"model": VOICE, "version": "v/1", "usd_per_unit": {"character": "0.000015"}},
    {"model": JUDGE, "version": "m/1", "usd_per_unit": {"request": "0.0002"}},
]


@pytest.fixture
def start(start_gateway, kit, upstream):
    """Start a gateway with a model for each endpoint, all at one server."""

    async def start(prices: Any = None, target: Any = None, **more: Any) -> Any:
        targets = [kit.http_target(upstream.url, **(target or {}))]
        pools = [(name, targets) for name in (IMAGE, WHISPER, VOICE, JUDGE)]
        return await start_gateway(kit.configuration(*pools, prices=CARDS if prices is None else prices, **more))

    return start


def hard(amount: str, **more: Any) -> dict[str, Any]:
    return {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": amount, **more}


async def draw(gateway: Any, **fields: Any) -> Any:
    return await gateway.sdk().images.generate(**{"model": IMAGE, "prompt": "a cat", **fields})


async def hear(gateway: Any, sound: bytes = SOUND, **fields: Any) -> Any:
    given: dict[str, Any] = {"model": WHISPER, "file": ("a.wav", sound), **fields}
    return await gateway.sdk().audio.transcriptions.create(**given)
