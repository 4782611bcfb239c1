"""Estimates whether a model fits its GPUs before anything is loaded. Pure.

The estimate has only what a model cannot do without: its weights, and the keys and values of one context. Activations
and CUDA graphs come on top, so a model that passes may still fail vLLM's own measurement; one that fails cannot run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.errors import ConfigurationError

_GB: Final = 1e9
_BITS: Final = {"float32": 32, "float": 32, "float16": 16, "half": 16, "bfloat16": 16, "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8}  # fmt: skip  # noqa: E501


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """One GPU's memory in bytes, its name for messages, and its driver's id (`uuid`)."""

    name: str
    total_bytes: int
    free_bytes: int
    uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """Memory that a model needs on all its GPUs together. `context_tokens` is the maximum of one request."""

    weights_bytes: int
    kv_bytes_per_token: int
    context_tokens: int
    ranks: int = 1

    @property
    def kv_bytes(self) -> int:
        """Return the bytes of one context's keys and values."""
        return self.kv_bytes_per_token * self.context_tokens

    @property
    def bytes_each(self) -> int:
        """Return the minimum number of bytes per GPU, rounded up."""
        return -(-(self.weights_bytes + self.kv_bytes) // self.ranks)


def dtype_bytes(name: str, default: int = 2) -> int:
    """Return the bytes of one number of a type by vLLM's name of it; `default` if the name is unknown ("auto")."""
    return _BITS.get(name.removeprefix("torch."), default * 8) // 8


def parameter_count(config: Mapping[str, object]) -> int | None:
    """Count the parameters of a model with Llama's architecture from its configuration; `None` for other
    architectures.
    """
    sizes = _sizes(config)
    if sizes is None or config.get("num_experts") or config.get("num_local_experts"):
        return None
    hidden, layers, heads, kv_heads, head = sizes
    inner, vocabulary = config.get("intermediate_size"), config.get("vocab_size")
    if not (isinstance(inner, int) and isinstance(vocabulary, int)):
        return None
    attention = hidden * head * (2 * heads + 2 * kv_heads)
    layer = attention + 3 * hidden * inner + 2 * hidden
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return layers * layer + embeddings + hidden


def kv_bytes_per_token(config: Mapping[str, object], number_bytes: int) -> int | None:
    """Return the bytes of one token's keys and values in all layers; `None` if the configuration does not determine
    them.

    Models with latent attention (`kv_lora_rank`) or sliding windows need less, and also give `None`.
    """
    sizes = _sizes(config)
    if sizes is None or config.get("kv_lora_rank") or config.get("sliding_window") or config.get("layer_types"):
        return None
    _, layers, _, kv_heads, head = sizes
    return 2 * layers * kv_heads * head * number_bytes


def check_room(model: str, needs: MemoryNeeds, gpus: Sequence[GpuRoom], utilization: float) -> None:
    """Raise ConfigurationError, with the calculation, if a model cannot fit. `utilization` is vLLM's share
    of each GPU.
    """
    if len(gpus) < needs.ranks:
        raise ConfigurationError(
            f"model {model!r} is to be spread over {needs.ranks} GPUs (tensor times pipeline parallel size), and this "
            f"host sees {len(gpus)}; request fewer, or expose more with CUDA_VISIBLE_DEVICES"
        )
    tightest = min(gpus[: needs.ranks], key=lambda gpu: _usable(gpu, utilization))
    usable = _usable(tightest, utilization)
    if needs.bytes_each <= usable:
        return
    raise ConfigurationError(
        f"model {model!r} does not fit: weights {_gb(needs.weights_bytes)} + keys and values of one context "
        f"{_gb(needs.kv_bytes)} ({needs.context_tokens} tokens of {needs.kv_bytes_per_token} bytes) over {needs.ranks} "
        f"GPU{'s' if needs.ranks > 1 else ''} = {_gb(needs.bytes_each)} each; {tightest.name} has "
        f"{_gb(tightest.free_bytes)} free of {_gb(tightest.total_bytes)}, of which --gpu-memory-utilization "
        f"{utilization:g} leaves {_gb(usable)}. Take a smaller --max-model-len, --quantization, more GPUs "
        "(--tensor-parallel-size) or a smaller model"
    )


def _usable(gpu: GpuRoom, utilization: float) -> int:
    return min(int(gpu.total_bytes * utilization), gpu.free_bytes)


def _sizes(config: Mapping[str, object]) -> tuple[int, int, int, int, int] | None:
    hidden, layers = config.get("hidden_size"), config.get("num_hidden_layers")
    heads = config.get("num_attention_heads")
    if not (isinstance(hidden, int) and isinstance(layers, int) and isinstance(heads, int) and heads):
        return None
    kv_heads, head = config.get("num_key_value_heads"), config.get("head_dim")
    return (
        hidden,
        layers,
        heads,
        kv_heads if isinstance(kv_heads, int) else heads,
        head if isinstance(head, int) else hidden // heads,
    )


def _gb(size: int) -> str:
    return f"{size / _GB:.2f} GB"
