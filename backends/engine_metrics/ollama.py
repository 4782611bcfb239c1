"""Ollama's list of loaded models (`GET /api/ps`), the only state that it reports: it has no Prometheus metrics.

Its queue, running requests and token counters are unknown and stay `None`.
"""

from typing import Final

import msgspec

from backends.engine_metrics.gauges import ServerGauges
from contracts.errors import UpstreamBroken


class _LoadedModel(msgspec.Struct):
    name: str
    size: int | None = None
    size_vram: int | None = None


class _Reply(msgspec.Struct):
    models: list[_LoadedModel] | None


_DECODER: Final = msgspec.json.Decoder(_Reply)


def read_loaded_models(text: str) -> ServerGauges:
    """Parse the list of loaded models. Raises UpstreamBroken if the text is not such a list."""
    try:
        models = _DECODER.decode(text).models or []
    except msgspec.DecodeError as error:
        raise UpstreamBroken(
            "its page is JSON, but not Ollama's list of loaded models; is metrics_url http://HOST:11434/api/ps?"
        ) from error
    return ServerGauges(
        engine="ollama",
        loaded_models=len(models),
        model_bytes=_total([model.size for model in models]),
        model_gpu_bytes=_total([model.size_vram for model in models]),
    )


def _total(sizes: list[int | None]) -> int | None:
    """Return the sum; `None` if one of them is unknown."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
