"""The LoRA adapters of one model: loads them into vLLM after checking that they fit."""

import itertools
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from backends.engine.model_card import read_json
from backends.engine.vllm_engine.failures import first_line
from backends.engine.vllm_engine.llm_client import Adapter, LlmClient
from contracts.errors import ConfigurationError

_MAX_HEADER_BYTES: Final = 100 << 20  # the limit of the safetensors format


class AdapterSet:
    """The loaded adapters. `by_name` is replaced as a whole, so that other threads may read it."""

    def __init__(self, client: LlmClient, config: Mapping[str, object], model: str, *, is_enabled: bool) -> None:
        self.by_name: dict[str, Adapter] = {}
        self._client = client
        self._config = config
        self._model = model
        self._is_enabled = is_enabled
        self._numbers = itertools.count(1)

    async def load(self, name: str, path: Path, *, is_in_use: bool) -> None:
        """Load an adapter. Raises ConfigurationError if it does not fit or the name is in use."""
        if not name or is_in_use:
            raise ConfigurationError(f"adapter name {name!r} is empty or in use by a running request")
        if not self._is_enabled:
            raise ConfigurationError(
                f"model {self._model!r} takes no adapters: vLLM was started without --enable-lora; add it to "
                "TOLLKEEPER_ENGINE_VLLM_ARGUMENTS"
            )
        check_adapter(path, self._config, self._model)
        adapter = Adapter(name, next(self._numbers), path.resolve())
        try:
            await self._client.add_adapter(adapter)
        except Exception as error:  # vLLM checks in its own process, from which any exception arrives as one type
            raise ConfigurationError(f"vLLM refuses adapter {name!r} in {path}: {first_line(error)}") from error
        old = self.by_name.get(name)
        self.by_name = {**self.by_name, name: adapter}
        if old is not None:
            await self._client.remove_adapter(old)

    async def unload(self, name: str, *, is_in_use: bool) -> None:
        """Unload an adapter. Raises ConfigurationError if it is not loaded or requests use it."""
        if is_in_use:
            raise ConfigurationError(f"adapter {name!r} is in use by a running request")
        adapter = self.by_name.get(name)
        if adapter is None:
            known = ", ".join(self.by_name) or "none"
            raise ConfigurationError(f"there is no adapter {name!r}; loaded: {known}")
        self.by_name = {other: one for other, one in self.by_name.items() if other != name}
        await self._client.remove_adapter(adapter)


def adapter_rank(path: Path) -> int:
    """Return an adapter's rank from its configuration. Raises ConfigurationError."""
    rank = read_json(path / "adapter_config.json").get("r")
    if not isinstance(rank, int) or rank < 1:
        raise ConfigurationError(f"{path} is no LoRA adapter: its adapter_config.json states no rank r")
    return rank


def check_adapter(path: Path, config: Mapping[str, object], model: str) -> None:
    """Check that an adapter's matrices fit the model. Raises ConfigurationError, naming the first that does not.

    Modules whose size the configuration does not state are checked by vLLM only.
    """
    adapter_rank(path)
    weights = path / "adapter_model.safetensors"
    if not weights.is_file():
        raise ConfigurationError(f"{path} has no adapter_model.safetensors")
    layers = config.get("num_hidden_layers")
    base = read_json(path / "adapter_config.json").get("base_model_name_or_path")
    stated = f" (made for {base})" if isinstance(base, str) and base else ""
    for name, shape in _tensor_shapes(weights).items():
        parts = name.split(".")
        if len(shape) != 2 or "layers" not in parts[:-1] or len(parts) < 4:
            continue
        layer = parts[parts.index("layers") + 1]
        if isinstance(layers, int) and layer.isdigit() and int(layer) >= layers:
            raise ConfigurationError(
                f"the adapter in {path}{stated} has a layer {layer}, model {model!r} {layers} layers: it is "
                "for another base"
            )
        sizes = _module_sizes(config, parts[-3])
        found = shape[1] if parts[-2] == "lora_A" else shape[0] if parts[-2] == "lora_B" else None
        if sizes is None or found is None:
            continue
        wanted = sizes[0] if parts[-2] == "lora_A" else sizes[1]
        if found != wanted:
            side = "columns" if parts[-2] == "lora_A" else "rows"
            raise ConfigurationError(
                f"the adapter in {path}{stated} has {found} {side} in {name}, model {model!r} needs {wanted}: it is "
                "for another base"
            )


def _module_sizes(config: Mapping[str, object], module: str) -> tuple[int, int] | None:
    """Return a projection's input and output size in models with Llama's layout; `None` if unknown."""
    if config.get("num_experts") or config.get("num_local_experts") or config.get("kv_lora_rank"):
        return None
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    inner = config.get("intermediate_size")
    if not (isinstance(hidden, int) and isinstance(heads, int) and isinstance(inner, int)):
        return None
    kv_heads = config.get("num_key_value_heads")
    head = config.get("head_dim")
    head = head if isinstance(head, int) else hidden // heads
    kv = (kv_heads if isinstance(kv_heads, int) else heads) * head
    return {
        "q_proj": (hidden, heads * head),
        "k_proj": (hidden, kv),
        "v_proj": (hidden, kv),
        "o_proj": (heads * head, hidden),
        "gate_proj": (hidden, inner),
        "up_proj": (hidden, inner),
        "down_proj": (inner, hidden),
    }.get(module)


def _tensor_shapes(path: Path) -> dict[str, list[int]]:
    """Return the shapes in a safetensors file's header. Raises ConfigurationError."""
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > _MAX_HEADER_BYTES:
                raise ValueError(f"a header of {size} bytes")
            header = json.loads(file.read(size))
        return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ConfigurationError(f"{path} is not a safetensors file: {first_line(error)}") from error
