"""LoRA adapters: low-rank additions to linear layers, selected per row, so that one batch may use several."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from contracts.errors import ConfigurationError, InvalidRequest

_PREFIX: Final = "base_model.model."


@dataclass(frozen=True, slots=True)
class _LowRank:
    """down [rank, in], up [out, rank], the latter scaled."""

    down: torch.Tensor
    up: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Share:
    """An adapter's tokens in this step; `None`: all of them."""

    weights: dict[str, _LowRank]
    rows: torch.Tensor | None


class AdapterSet:
    """The adapters of one model. A layer is hooked when the first adapter needs it."""

    def __init__(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        self._linear = {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
        self._device = device
        self._dtype = dtype
        self._adapters: dict[str, dict[str, _LowRank]] = {}
        self._hooked: set[str] = set()
        self._active: list[_Share] = []

    @property
    def names(self) -> list[str]:
        """Return the loaded adapters' names."""
        return list(self._adapters)

    def __contains__(self, name: str) -> bool:
        return name in self._adapters

    def lack_of(self, name: str) -> InvalidRequest | None:
        """Return the error for a request whose adapter is not loaded; `None` if it is loaded or none is named."""
        if not name or name in self._adapters:
            return None
        known = ", ".join(self._adapters) or "none"
        return InvalidRequest(f"adapter {name!r} is not loaded; loaded: {known}", param="model", code="unknown_adapter")

    def load(self, name: str, path: Path) -> None:
        """Load a PEFT directory from safetensors. Raises ConfigurationError if it is unsupported or does not fit the
        model.
        """
        config = _read_config(path)
        try:
            tensors = load_file(path / "adapter_model.safetensors")
        except (OSError, SafetensorError) as error:
            raise ConfigurationError(f"adapter {path} has no readable adapter_model.safetensors: {error}") from error
        rank = int(str(config.get("r", 0)))
        if rank < 1:
            raise ConfigurationError(f"adapter {path} has rank {rank}")
        alpha = float(str(config.get("lora_alpha", rank)))
        scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
        weights = self._pair(path, tensors, scale)
        for layer_name in weights:
            if layer_name not in self._hooked:
                self._hook(layer_name)
        self._adapters[name] = weights

    def unload(self, name: str) -> None:
        """Unload an adapter. Raises ConfigurationError if it is not loaded."""
        if name not in self._adapters:
            raise ConfigurationError(f"adapter {name!r} is not loaded")
        del self._adapters[name]

    def select(self, rows: Sequence[tuple[str, int]]) -> None:
        """Set the adapters of the next step's packed tokens, in order: (adapter or empty, number of tokens)."""
        if not self._adapters or not any(name for name, _ in rows):
            self._active = []
            return
        places: dict[str, list[int]] = {}
        begin = 0
        for name, count in rows:
            places.setdefault(name, []).extend(range(begin, begin + count))
            begin += count
        self._active = [
            _Share(self._adapters[name], None if len(at) == begin else torch.tensor(at, device=self._device))
            for name, at in places.items()
            if name
        ]

    def _pair(self, path: Path, tensors: dict[str, torch.Tensor], scale: float) -> dict[str, _LowRank]:
        found: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in tensors.items():
            layer, _, side = key.removeprefix(_PREFIX).replace(".default.", ".").rpartition(".lora_")
            if side not in ("A.weight", "B.weight") or layer not in self._linear or layer == "lm_head":
                raise ConfigurationError(f"adapter {path} changes {key}, which is not a linear layer of this model")
            found.setdefault(layer, {})[side[0]] = tensor.to(self._device, self._dtype)
        pairs = {}
        for layer, sides in found.items():
            linear = self._linear[layer]
            down, up = sides.get("A"), sides.get("B")
            fits = down is not None and up is not None and down.shape[0] == up.shape[1]
            if down is None or up is None or not fits or (up.shape[0], down.shape[1]) != tuple(linear.weight.shape):
                raise ConfigurationError(f"adapter {path} does not fit the shape of {layer}")
            pairs[layer] = _LowRank(down, up * scale)
        return pairs

    def _hook(self, layer_name: str) -> None:
        def add(_layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor | None:
            if not self._active:
                return None
            changed = output
            for share in self._active:
                low = share.weights.get(layer_name)
                if low is None:
                    continue
                if share.rows is None:
                    return output + inputs[0] @ low.down.T @ low.up.T
                if changed is output:
                    changed = output.clone()
                own = inputs[0].index_select(1, share.rows)
                changed.index_add_(1, share.rows, own @ low.down.T @ low.up.T)
            return changed

        self._linear[layer_name].register_forward_hook(add)
        self._hooked.add(layer_name)


def _read_config(path: Path) -> dict[str, object]:
    try:
        config = json.loads((path / "adapter_config.json").read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} is not an adapter: adapter_config.json cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ConfigurationError(f"{path} is not a LoRA adapter")
    for name in ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication"):
        if config.get(name):
            raise ConfigurationError(f"adapter {path} uses {name}, which this engine does not apply")
    if config.get("bias", "none") != "none":
        raise ConfigurationError(f"adapter {path} changes biases, which this engine does not apply")
    return config
