"""Estimates a step model for another GPU, weight format or cache, by the ratios of data sheet figures.

Compute-bound time (tokens above the roofline's ridge, attention, logits) scales with the GPU's FLOP/s; memory-bound
time (weights below the ridge, keys and values) with memory bandwidth and bytes; fixed time and kernel launches with
neither, as the host determines them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import msgspec

from algorithms.gpu_time.step_model import StepModel
from analytics.planner.setup import ReplicaSetup
from contracts.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its vendor's data sheet: memory, bandwidth, dense FLOP/s (no sparsity) by weight format."""

    name: str
    memory_gb: float
    terabytes_per_second: float
    bf16_teraflops: float
    fp8_teraflops: float | None = None
    int8_teraops: float | None = None

    def teraflops(self, quantization: str) -> float:
        """Return dense TFLOP/s for a weight format; that of 16 bits for 4-bit weights and unsupported formats."""
        found = {"fp8": self.fp8_teraflops, "int8": self.int8_teraops}.get(quantization)
        return found or self.bf16_teraflops


# SXM, OAM and PCIe boards as docs/planning.md names them, with the sources of the figures. Vendors print most figures
# with sparsity; these are half of them.
GPUS: Final[Mapping[str, Gpu]] = {
    one.name: one
    for one in (
        Gpu("a100-80gb", 80, 2.039, 312, None, 624),
        Gpu("h100", 80, 3.35, 989, 1979, 1979),
        Gpu("h200", 141, 4.8, 989, 1979, 1979),
        Gpu("b200", 180, 8.0, 2250, 4500, 4500),
        Gpu("l4", 24, 0.3, 121, 242, 242),
        Gpu("l40s", 48, 0.864, 362, 733, 733),
        Gpu("mi300x", 192, 5.3, 1307, 2615, 2615),
    )
}

WEIGHT_BYTES: Final[Mapping[str, float]] = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
_MEMORY_SHARE: Final = 0.9  # share of a GPU's memory that an engine takes: vLLM's default


@dataclass(frozen=True, slots=True)
class Served:
    """A replica's model: parameters (billions, all ranks), weight format, and bytes of keys and values per token.

    `kv_token_bytes` covers all layers and ranks: 2 x layers x KV heads x head size x bytes per value.
    """

    parameters_billions: float
    kv_token_bytes: float
    quantization: str = "bf16"

    def __post_init__(self) -> None:
        if self.quantization not in WEIGHT_BYTES:
            known = ", ".join(WEIGHT_BYTES)
            raise InvalidRequest(
                f"weights in {self.quantization!r} are not known; there are {known}", param="quantization"
            )
        if self.parameters_billions <= 0 or self.kv_token_bytes <= 0:
            raise InvalidRequest("a model has more than 0 parameters and bytes of keys and values per token")

    @property
    def weight_bytes(self) -> float:
        """Return the size of all weights in bytes."""
        return self.parameters_billions * 1e9 * WEIGHT_BYTES[self.quantization]


def gpu_named(name: str) -> Gpu:
    """Return a GPU by its name. Raises InvalidRequest if it is unknown."""
    found = GPUS.get(name.lower())
    if found is None:
        raise InvalidRequest(f"no GPU is called {name!r}; there are: {', '.join(GPUS)}", param="gpu")
    return found


def moved_steps(steps: StepModel, compute: float, bandwidth: float, weights: float = 1.0) -> StepModel:
    """Return a step model with FLOP/s multiplied by `compute`, memory bandwidth by `bandwidth`, weight bytes by
    `weights`.

    All three are ratios of new to old. The result is an estimate; prefer steps measured on the new GPU.
    """
    for name, ratio in (("compute", compute), ("bandwidth", bandwidth), ("weights", weights)):
        if not 0 < ratio < 1e3:
            raise InvalidRequest(f"the ratio of {name} is {ratio:g}; it must be above 0 and below 1,000")
    token_ns = steps.token_ns / compute
    floor_ns = steps.token_ns * steps.ridge_tokens * weights / bandwidth
    pair_ns = steps.pair_ns / compute
    return msgspec.structs.replace(
        steps,
        token_ns=token_ns,
        ridge_tokens=floor_ns / token_ns if token_ns else steps.ridge_tokens,
        pair_ns=pair_ns,
        read_ns=max(steps.read_ns / bandwidth, pair_ns),
        logit_ns=steps.logit_ns / compute,
    )


def moved(
    setup: ReplicaSetup,
    old: Gpu,
    new: Gpu,
    *,
    served: Served | None = None,
    quantization: str | None = None,
    usd_per_gpu_hour: Decimal | None = None,
) -> ReplicaSetup:
    """Return a replica on another GPU, or with its weights in another format.

    The number of cache blocks is recomputed if `served` is given, else unchanged. The new GPU's price is
    `usd_per_gpu_hour`, or unknown.
    """
    before = served.quantization if served is not None else "bf16"
    after = quantization or before
    if after not in WEIGHT_BYTES:
        raise InvalidRequest(
            f"weights in {after!r} are not known; there are {', '.join(WEIGHT_BYTES)}", param="quantization"
        )
    steps = moved_steps(
        setup.steps,
        new.teraflops(after) / old.teraflops(before),
        new.terabytes_per_second / old.terabytes_per_second,
        WEIGHT_BYTES[after] / WEIGHT_BYTES[before],
    )
    blocks = setup.kv_blocks
    if served is not None:
        blocks = blocks_that_fit(new, replace(served, quantization=after), setup.ranks, setup.block_tokens)
    price = usd_per_gpu_hour
    if price is None and new is old:
        price = setup.usd_per_gpu_hour
    return replace(setup, steps=steps, kv_blocks=blocks, usd_per_gpu_hour=price)


def blocks_that_fit(gpu: Gpu, served: Served, ranks: int, block_tokens: int) -> int:
    """Return the number of cache blocks that fit beside the weights. Raises InvalidRequest if there is no space."""
    room = gpu.memory_gb * 1e9 * _MEMORY_SHARE * ranks - served.weight_bytes
    blocks = int(room / (served.kv_token_bytes * block_tokens))
    if blocks < 1:
        raise InvalidRequest(
            f"{served.weight_bytes / 1e9:.0f} GB of weights leave no room for a cache on {ranks} x {gpu.name} "
            f"({gpu.memory_gb:g} GB each); take more GPUs, another kind, or fewer bits"
        )
    return blocks
