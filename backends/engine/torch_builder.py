"""Builds the torch engine for an order. Imported only when needed, in the engine's thread: torch takes seconds to
import.
"""

from pathlib import Path

import torch

from backends.engine.base import Engine, ModelOrder
from backends.engine.quiet_transformers import quiet_transformers
from backends.engine.settings import EngineHostSettings
from backends.engine.torch_engine.engine import TorchEngine
from backends.engine.torch_engine.settings import EngineSettings
from contracts.errors import ConfigurationError

_OPTIONS = {
    "device": str,
    "dtype": str,
    "kv_bytes": int,
    "context_tokens": int,
    "max_batch_tokens": int,
    "max_sequences": int,
    "threads": int,
    "prefix_cache": bool,
    "metering": bool,
    "tool_parser": str,
    "reasoning_tags": str,
}


def build(settings: EngineHostSettings, order: ModelOrder, path: Path) -> Engine:
    """Load a model from a directory. Raises ConfigurationError if the model, an option or the memory is unsuitable."""
    quiet_transformers()
    options: dict[str, object] = {
        "device": settings.engine_device or ("cuda" if torch.cuda.is_available() else "cpu"),
        "dtype": settings.engine_dtype or None,
        "kv_bytes": settings.engine_kv_bytes,
        "context_tokens": settings.engine_context_tokens,
        "max_batch_tokens": settings.engine_max_batch_tokens,
        "max_sequences": settings.engine_max_sequences,
        "threads": settings.threads,
        "prefix_cache": settings.engine_prefix_cache,
        "metering": settings.engine_metering,
        "tool_parser": settings.engine_tool_parser,
        "reasoning_tags": settings.engine_reasoning_tags,
    }
    for name, value in order.options.items():
        if name not in _OPTIONS or type(value) is not _OPTIONS[name]:
            raise ConfigurationError(
                f"option {name}={value!r} is not one of "
                + ", ".join(f"{known} ({kind.__name__})" for known, kind in _OPTIONS.items())
            )
        options[name] = value
    if options["dtype"] not in (None, "float32", "bfloat16"):
        raise ConfigurationError(f"dtype {options['dtype']!r} is neither float32 nor bfloat16")
    return TorchEngine(
        EngineSettings(
            path=path,
            model=order.name,
            engine=order.engine,
            replica=settings.replica,
            adapters=order.adapters,
            **options,  # type: ignore[arg-type]  # checked against the table above
        )
    )
