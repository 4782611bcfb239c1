"""Loads a checked model directory with transformers, replaces its attention by ours, and verifies that it is used."""

import logging
from dataclasses import dataclass

import psutil
import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from backends.engine.torch_engine.attention import NAME, Segment, StepLayout, paged_attention
from backends.engine.torch_engine.block_manager import BLOCK_SIZE
from backends.engine.torch_engine.kv_pool import KvPool, KvShape
from backends.engine.torch_engine.model_files import ModelFiles
from backends.engine.torch_engine.settings import EngineSettings
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

_CPU_SHARE = 8
_CPU_MOST_BYTES = 2 << 30
_GPU_SHARE = 0.8  # the rest is for activations and other processes


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device, with its shape and limits."""

    module: nn.Module
    kv: KvShape
    vocabulary: int
    context_tokens: int
    device: torch.device


def load_model(files: ModelFiles, settings: EngineSettings) -> LoadedModel:
    """Load weights from safetensors only. Raises ConfigurationError if the model is not supported."""
    AttentionInterface.register(NAME, paged_attention)
    AttentionMaskInterface.register(NAME, _no_mask)
    device = find_device(settings)
    dtype = getattr(torch, settings.dtype or ("float32" if device.type == "cpu" else "bfloat16"))
    try:
        config = AutoConfig.from_pretrained(files.path, local_files_only=True, trust_remote_code=False)
        module = AutoModelForCausalLM.from_pretrained(
            files.path,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            attn_implementation=NAME,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ConfigurationError(f"{files.path}: {files.architecture} cannot be loaded: {error}") from error
    module.eval()
    module.requires_grad_(False)
    module.to(device)
    loaded = _described(module, files, settings, device, dtype)
    _probe(loaded, files)
    return loaded


def _described(
    module: PreTrainedModel, files: ModelFiles, settings: EngineSettings, device: torch.device, dtype: torch.dtype
) -> LoadedModel:
    config = module.config
    try:
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kv = KvShape(config.num_hidden_layers, heads, size, dtype)
        context = _context_tokens(config.max_position_embeddings, settings)
        return LoadedModel(module=module, kv=kv, vocabulary=config.vocab_size, context_tokens=context, device=device)
    except AttributeError as error:
        raise ConfigurationError(
            f"{files.path}: {files.architecture} is not described the way decoders with standard attention are: {error}"
        ) from error


def kv_blocks(loaded: LoadedModel, settings: EngineSettings) -> tuple[int, int]:
    """Return the number of blocks of the pool, and the bytes of the decode buffer.

    Raises ConfigurationError, with the calculation, if the pool could not store one request of full length.
    """
    block_bytes = loaded.kv.token_bytes * BLOCK_SIZE
    if settings.kv_blocks is not None:
        blocks, given = settings.kv_blocks, settings.kv_blocks * block_bytes * 2
    else:
        given = settings.kv_bytes if settings.kv_bytes is not None else _default_bytes(loaded)
        blocks = given // 2 // block_bytes
    needed = -(-loaded.context_tokens // BLOCK_SIZE)
    if blocks < needed:
        raise ConfigurationError(
            f"one request of {loaded.context_tokens} tokens needs {needed} blocks x {BLOCK_SIZE} tokens x "
            f"{loaded.kv.token_bytes} bytes = {needed * block_bytes / 2**20:.1f} MiB of keys and values, but half of "
            f"{given / 2**20:.1f} MiB holds only {blocks} blocks; give at least "
            f"{2 * needed * block_bytes / 2**20:.1f} MiB or lower the context"
        )
    useful = settings.max_sequences * needed
    blocks = min(blocks, useful)
    return blocks, blocks * block_bytes


def _default_bytes(loaded: LoadedModel) -> int:
    if loaded.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(loaded.device)
        return int(free * _GPU_SHARE)
    return min(psutil.virtual_memory().available // _CPU_SHARE, _CPU_MOST_BYTES)


def find_device(settings: EngineSettings) -> torch.device:
    """Return the requested device. Raises ConfigurationError if it does not exist."""
    if settings.device.partition(":")[0] not in ("cpu", "cuda"):
        raise ConfigurationError(f"device {settings.device!r} is neither cpu nor cuda")
    try:
        device = torch.device(settings.device)
    except RuntimeError as error:
        raise ConfigurationError(f"device {settings.device!r} is not how torch names one") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(f"device {settings.device!r} is asked for, but torch finds no CUDA device")
    return device


def _context_tokens(own: int, settings: EngineSettings) -> int:
    if settings.context_tokens is None:
        return own
    if not 1 < settings.context_tokens <= own:
        raise ConfigurationError(f"context_tokens {settings.context_tokens} is not within 2 to the model's {own}")
    return settings.context_tokens


def _no_mask(*_arguments: object, **_named: object) -> None:
    """Return no attention mask: the engine uses its own."""


def _probe(loaded: LoadedModel, files: ModelFiles) -> None:
    """Run two tokens, to detect an unsupported model before the first request. Raises ConfigurationError."""
    pool = KvPool(loaded.kv, 1, loaded.device)
    layout = StepLayout([], [Segment(0, 2, None, None)], pool.data, 0, pool.slots([0], 2))
    ids = torch.tensor([[0, 0]], device=loaded.device)
    try:
        with torch.inference_mode():
            logits = loaded.module(
                input_ids=ids,
                position_ids=torch.arange(2, device=loaded.device)[None],
                use_cache=False,
                layout=layout,
                logits_to_keep=torch.tensor([1], device=loaded.device),
            ).logits
    except ConfigurationError as error:
        raise ConfigurationError(f"{files.path}: {files.architecture}: {error.message}") from error
    except (TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise ConfigurationError(f"{files.path}: {files.architecture} does not run on this engine: {error}") from error
    if layout.calls != loaded.kv.layers:
        raise ConfigurationError(
            f"{files.path}: {files.architecture} has {loaded.kv.layers} layers, of which {layout.calls} attend in "
            "the standard way; this engine serves only models where all do"
        )
    if tuple(logits.shape) != (1, 1, loaded.vocabulary):
        raise ConfigurationError(f"{files.path}: {files.architecture} gives logits of shape {tuple(logits.shape)}")
