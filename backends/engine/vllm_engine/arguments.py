"""Builds vLLM's arguments from the operator's, as for `vllm serve`, and those that the host sets."""

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.engine.base import ModelOrder
from backends.engine.settings import EngineHostSettings
from backends.engine.vllm_engine.adapter_set import adapter_rank
from contracts.errors import ConfigurationError

# vLLM's kernels exist for these ranks only (vllm/config/lora.py, 0.25.1).
_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Arguments that the host sets, with the setting to use instead.
_OURS: Final = {
    "--model": "give the model in TOLLKEEPER_ENGINE_MODEL",
    "--served-model-name": "the model's name is given in TOLLKEEPER_ENGINE_MODEL, as name=directory",
    "--tokenizer": "gateways make prompts with the model's own tokenizer.json; put the right one into its directory",
    "--disable-log-stats": "the host reads vLLM's statistics itself",
    "--data-parallel-rank": "the host passes requests to its ranks itself",
}
_GRAMMARS: Final = "--structured-outputs-config"
# The same grammar library as in our own engine. With vLLM's "auto" the first request chooses one for all requests, and
# a grammar that this one cannot read then ends vLLM's process (0.25.1, measured).
_OUR_GRAMMARS: Final = json.dumps({"backend": "guidance", "disable_any_whitespace": True})
_METERED: Final = "steps are metered by a worker class of ours; TOLLKEEPER_ENGINE_METERING=false makes room for another"


@dataclass(frozen=True, slots=True)
class VllmArguments:
    """Arguments for vLLM. `words` are for its engine; the rest are options of `vllm serve` that the engine does not
    have.
    """

    words: tuple[str, ...]
    tool_parser: str = ""
    chat_template: Path | None = None


def vllm_arguments(settings: EngineHostSettings, order: ModelOrder, path: Path) -> VllmArguments:
    """Combine the arguments of one model: the host's settings, then the operator's arguments, then the call's options.

    If one is repeated, the last counts, as on vLLM's command line. Raises ConfigurationError.
    """
    given = [*split_words(settings.engine_vllm_arguments), *option_words(order.options)]
    own, given = _split_off(given)
    names = {word.partition("=")[0].replace("_", "-") for word in given if word.startswith("--")}
    for name in names:
        reason = _METERED if name == "--worker-cls" and settings.engine_metering else _OURS.get(name)
        if reason is not None:
            raise ConfigurationError(f"TOLLKEEPER_ENGINE_VLLM_ARGUMENTS may not hold {name}: {reason}")
    words = ["--model", str(path), "--served-model-name", order.name, "--disable-log-stats"]
    words += _from_settings(settings)
    if "--scheduling-policy" not in names:
        words += ["--scheduling-policy", "priority"]  # else vLLM ignores the gateway's priorities
    if not any(name.startswith(_GRAMMARS) for name in names):
        words += [_GRAMMARS, _OUR_GRAMMARS]
    if order.adapters and "--enable-lora" not in names:
        words += _for_adapters(order)
    template = Path(own.chat_template) if own.chat_template else None
    return VllmArguments((*words, *given), own.tool_call_parser or "", template)


def split_words(text: str) -> list[str]:
    """Split text into words as a shell does. Raises ConfigurationError on an unclosed quotation."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigurationError(f"TOLLKEEPER_ENGINE_VLLM_ARGUMENTS cannot be read: {error}") from error


def option_words(options: Mapping[str, float | int | str | bool | None]) -> list[str]:
    """Return a load call's options as arguments: `max_model_len: 4096` becomes `--max-model-len 4096`.

    True becomes the bare name, False the name with `no-`; `None` leaves the option to vLLM.
    """
    words: list[str] = []
    for name, value in options.items():
        flag = name.strip("-").replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", value if isinstance(value, str) else json.dumps(value)]
    return words


def _from_settings(settings: EngineHostSettings) -> list[str]:
    """Return the settings that are set as vLLM arguments."""
    words: list[str] = []
    if settings.engine_dtype:
        words += ["--dtype", settings.engine_dtype]
    if settings.engine_kv_bytes is not None:
        words += ["--kv-cache-memory-bytes", str(settings.engine_kv_bytes)]
    if settings.engine_context_tokens is not None:
        words += ["--max-model-len", str(settings.engine_context_tokens)]
    stated = settings.model_fields_set  # only if set: their defaults are for the torch engine
    if "engine_max_batch_tokens" in stated:
        words += ["--max-num-batched-tokens", str(settings.engine_max_batch_tokens)]
    if "engine_max_sequences" in stated:
        words += ["--max-num-seqs", str(settings.engine_max_sequences)]
    if not settings.engine_prefix_cache:
        words.append("--no-enable-prefix-caching")
    device = settings.engine_device.partition(":")
    if device[0] not in ("", "cuda"):
        raise ConfigurationError(f"TOLLKEEPER_ENGINE_DEVICE is {settings.engine_device!r}; vLLM runs on cuda only")
    if device[2]:
        words += ["--device-ids", device[2]]
    return words


def _for_adapters(order: ModelOrder) -> list[str]:
    ranks = [adapter_rank(path) for _, path in order.adapters]
    rank = next((size for size in _RANKS if size >= max(ranks)), None)
    if rank is None:
        raise ConfigurationError(f"an adapter of rank {max(ranks)} exceeds the largest that vLLM serves, {_RANKS[-1]}")
    return ["--enable-lora", "--max-loras", str(len(ranks)), "--max-lora-rank", str(rank)]


def _split_off(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Separate options of `vllm serve` from arguments of the engine."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--tool-call-parser")
    parser.add_argument("--chat-template")
    parser.add_argument("--enable-auto-tool-choice", action="store_true")  # implied by naming a parser
    try:
        return parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        raise ConfigurationError(f"TOLLKEEPER_ENGINE_VLLM_ARGUMENTS cannot be read: {error}") from error
