"""Collects the inputs of the memory plan: each GPU's memory from the driver, the model's size from its files."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from backends.engine.vllm_engine.memory_plan import (
    GpuRoom,
    MemoryNeeds,
    check_room,
    dtype_bytes,
    kv_bytes_per_token,
    parameter_count,
)
from backends.gpu.readers import require_gpu, visible
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

_ONLINE: Final = "fp8"  # quantized while loading: one byte per parameter, whatever the files contain


def check_gpus(model: str, config: Mapping[str, object], path: Path, vllm_config: Any) -> list[GpuRoom]:
    """Return the GPUs that a model will use, before it is loaded.

    Raises ConfigurationError if it cannot fit, Unavailable if no driver answers.
    """
    gpus = visible_room()
    parallel = vllm_config.parallel_config
    chosen = getattr(parallel, "device_ids", None)
    rooms = [gpus[one] for one in chosen if isinstance(one, int) and one < len(gpus)] if chosen else gpus
    needs = needs_of(config, path, vllm_config)
    if needs is None:
        _log.info(
            "memory cannot be estimated before loading model=%s: its configuration does not state its sizes", model
        )
    else:
        check_room(model, needs, rooms, float(vllm_config.cache_config.gpu_memory_utilization))
    return rooms[: int(parallel.world_size)]


def visible_room() -> list[GpuRoom]:
    """Return the memory of the GPUs that this process may use. Raises Unavailable if no driver answers."""
    readers = require_gpu()
    try:
        found = []
        for reader in readers:
            mine = visible(reader.devices(), os.environ)
            samples = {sample.uuid: sample for sample in reader.look().samples}
            for one in mine:
                sample = samples.get(one.uuid)
                if sample is not None and sample.memory_total_bytes and sample.memory_free_bytes is not None:
                    name = f"GPU {one.index} ({one.name})"
                    found.append(GpuRoom(name, sample.memory_total_bytes, sample.memory_free_bytes, one.uuid))
        return found
    finally:
        for reader in readers:
            reader.close()


def needs_of(config: Mapping[str, object], path: Path, vllm_config: Any) -> MemoryNeeds | None:
    """Return a model's estimated memory; `None` if its configuration does not determine it."""
    model, cache, parallel = vllm_config.model_config, vllm_config.cache_config, vllm_config.parallel_config
    number = dtype_bytes(str(model.dtype))
    kv = kv_bytes_per_token(config, dtype_bytes(str(cache.cache_dtype), number))
    weights = _weights_bytes(config, path, vllm_config, number)
    if kv is None or weights is None:
        return None
    return MemoryNeeds(
        weights_bytes=weights,
        kv_bytes_per_token=kv,
        context_tokens=int(model.max_model_len),
        ranks=int(parallel.tensor_parallel_size) * int(parallel.pipeline_parallel_size),
    )


def _weights_bytes(config: Mapping[str, object], path: Path, vllm_config: Any, number: int) -> int | None:
    parameters = parameter_count(config)
    if vllm_config.model_config.quantization == _ONLINE and "quantization_config" not in config:
        return parameters
    if vllm_config.load_config.load_format == "dummy":
        return None if parameters is None else parameters * number
    try:
        size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    except OSError as error:
        raise ConfigurationError(f"the weights in {path} cannot be read: {error.strerror}") from error
    return size or None
