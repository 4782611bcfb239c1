"""Builds a vLLM engine for an order. Imported only when needed, in the engine's thread: vLLM takes many seconds to
import.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from backends.engine.base import Engine, ModelOrder
from backends.engine.model_card import ModelCard
from backends.engine.parsers.answer_format import AnswerFormat
from backends.engine.settings import EngineHostSettings
from backends.engine.step_book import StepBook
from backends.engine.torch_engine.detokenizer import Vocabulary
from backends.engine.torch_engine.request_check import MAX_CHOICES, ModelLimits
from backends.engine.vllm_engine.adapter_set import AdapterSet
from backends.engine.vllm_engine.answer_forms import AnswerForms, TemplateForms
from backends.engine.vllm_engine.arguments import VllmArguments, vllm_arguments
from backends.engine.vllm_engine.cache_hooks import add_cache_hooks
from backends.engine.vllm_engine.capability import check_vllm
from backends.engine.vllm_engine.engine import Parts, VllmEngine
from backends.engine.vllm_engine.gauges import Gauges
from backends.engine.vllm_engine.gpu_room import check_gpus
from backends.engine.vllm_engine.intake import Intake
from backends.engine.vllm_engine.llm_client import LlmFacts
from backends.engine.vllm_engine.memory_plan import GpuRoom
from backends.engine.vllm_engine.metering.capability import missing_hooks
from backends.engine.vllm_engine.metering.meter import WORKER, MeterOptions, VllmMeter
from backends.engine.vllm_engine.model_card import read_model_card
from backends.engine.vllm_engine.step_metering import NoMetering, StepMetering
from contracts.engine.wire import ModelHello
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

# Read by vLLM at its import or when it starts processes; the operator's own values take precedence.
_ENVIRONMENT: Final = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # the host has threads, whose locks would stay held in a fork
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENFORCE_STRICT_TOOL_CALLING": "0",  # only one grammar library supports its structural tags
    "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE": "4096",  # nothing else runs on this loop: a step's outputs at once
}


def prepare_environment() -> None:
    """Set vLLM's environment variables, unless the operator has set them. Call it before the import."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def build(settings: EngineHostSettings, order: ModelOrder, path: Path) -> Engine:
    """Load a model from a directory. Raises ConfigurationError if the model, an argument or the memory is
    unsuitable.
    """
    began = time.monotonic()
    arguments = vllm_arguments(settings, order, path)
    card = read_model_card(path, arguments.chat_template)
    prepare_environment()
    from backends.engine.vllm_engine.async_llm import engine_arguments, engine_config

    version = check_vllm()
    engine_args = engine_arguments(arguments.words)
    is_metered = settings.engine_metering and can_meter(int(engine_args.data_parallel_size or 1))
    if is_metered:
        engine_args.worker_cls = WORKER
    config = engine_config(engine_args)
    gpus = check_gpus(order.name, card.config, path, config)
    metering = _metering(settings, order, config, gpus) if is_metered else NoMetering()
    with _closed_on_failure(order) as opened:
        opened.append(metering.close)
        hasher = ThreadPoolExecutor(1, thread_name_prefix=f"weights-{order.name}")
        weights_hash = hasher.submit(card.weights_hash, _weights_settings(engine_args))
        hasher.shutdown(wait=False)
        metering.lifecycle("load")
        gauges = Gauges()
        hooks = add_cache_hooks(config)
        opened.append(hooks.close)
        client = _start(order, config, gauges, can_sleep=bool(engine_args.enable_sleep_mode))
        opened.append(client.close)
        facts: LlmFacts = client.facts
        vocabulary = Vocabulary(card.tokenizer)
        limits = ModelLimits(
            order.name, facts.vocabulary, facts.context_tokens, MAX_CHOICES, card.tokenizer_hash, card.template_hash
        )
        answers = _answers(settings, arguments, card, vocabulary, client)
        engine = VllmEngine(
            Parts(
                client=client,
                hello=model_hello(order.name, card, facts),
                intake=Intake(limits, vocabulary, answers, facts.accepts_images, hooks.keeps),
                adapters=AdapterSet(client, card.config, order.name, is_enabled=config.lora_config is not None),
                metering=metering,
                gauges=gauges,
                kv=hooks.source(order, settings.replica, facts.block_size),
                weights_hash=weights_hash.result,
            )
        )
        for name, adapter in order.adapters:
            engine.load_adapter(name, adapter)
    metering.queue(time.monotonic_ns(), runnable=False)
    metering.lifecycle(None)
    _log.info("vLLM serves model=%s version=%s seconds=%.1f", order.name, version, time.monotonic() - began)
    return engine


@contextmanager
def _closed_on_failure(order: ModelOrder) -> Iterator[list[Callable[[], None]]]:
    """Call the registered functions, last first, if a load fails, so that no process of vLLM outlives it."""
    opened: list[Callable[[], None]] = []
    try:
        yield opened
    except BaseException:
        for close in reversed(opened):
            try:
                close()
            except Exception:  # the load's own failure is reported, and the rest is still closed
                _log.exception("a part of vLLM did not close model=%s", order.name)
        raise


def _start(order: ModelOrder, config: Any, gauges: Gauges, *, can_sleep: bool) -> Any:
    """Start vLLM's processes. Raises ConfigurationError if they do not start."""
    from backends.engine.vllm_engine.async_llm import AsyncLlmClient

    try:
        return AsyncLlmClient(config, gauges, can_sleep=can_sleep)
    except Exception as error:  # any exception of vLLM's processes
        _log.exception("vLLM did not start model=%s", order.name)
        raise ConfigurationError(
            f"vLLM did not start with model {order.name!r}: {type(error).__name__}; its log above says why"
        ) from error


def _answers(
    settings: EngineHostSettings, arguments: VllmArguments, card: ModelCard, vocabulary: Vocabulary, client: Any
) -> AnswerForms:
    """Return the answer parsers: vLLM's own if the operator names one, else ours, chosen by the chat template."""
    reasoning = client.reasoning_parser
    if not arguments.tool_parser and not reasoning:
        own = AnswerFormat.of(card.chat_template, settings.engine_reasoning_tags, settings.engine_tool_parser)
        return TemplateForms(own, vocabulary)
    from backends.engine.vllm_engine.vllm_parsers import VllmForms

    return VllmForms.named(client, vocabulary, tool_parser=arguments.tool_parser, reasoning_parser=reasoning)


def model_hello(name: str, card: ModelCard, facts: LlmFacts) -> ModelHello:
    """Return the description of a model that vLLM serves."""
    return ModelHello(
        id=name,
        kind="embed" if facts.kind == "embed" else "generate",
        tokenizer_hash=card.tokenizer_hash,
        template_hash=card.template_hash,
        tokenizer=card.tokenizer,
        chat_template=card.chat_template,
        special_tokens=card.special_tokens,
        eos_token_ids=list(card.eos_token_ids),
        context_tokens=facts.context_tokens,
        block_size=facts.block_size,
        kv_blocks=facts.kv_blocks,
        vocabulary=facts.vocabulary,
        dimensions=facts.dimensions,
        accepts_images=facts.accepts_images,
    )


def can_meter(data_parallel: int = 1) -> bool:
    """Return whether the installed vLLM's steps can be metered; log a warning if not, since serving does not need it.

    Data-parallel ranks are separate engines, whose steps do not fit one timeline.
    """
    if data_parallel > 1:
        _log.warning("steps of %d data-parallel ranks are not metered: run a host for each rank", data_parallel)
        return False
    missing = missing_hooks()
    if missing:
        _log.warning("vLLM's steps are not metered: this version lacks %s", ", ".join(missing))
    return not missing


def _metering(settings: EngineHostSettings, order: ModelOrder, config: Any, gpus: Sequence[GpuRoom]) -> StepMetering:
    devices = tuple(gpu.uuid for gpu in gpus if gpu.uuid)
    device = devices[0] if devices else "cuda"
    book = StepBook(order.engine, order.name, settings.replica, device, dead_since_ns=order.died_ns)
    ranks = int(config.parallel_config.world_size)
    block_size = int(config.cache_config.block_size or 16)
    return VllmMeter(book, MeterOptions(model=order.name, ranks=ranks, block_size=block_size, devices=devices))


def _weights_settings(arguments: Any) -> str:
    """Return how the loaded weights differ from the files; empty if they do not."""
    found: Mapping[str, object] = {
        "load_format": arguments.load_format if arguments.load_format == "dummy" else None,
        "quantization": arguments.quantization,
        "seed": arguments.seed if arguments.load_format == "dummy" else None,
    }
    return ",".join(f"{name}={value}" for name, value in found.items() if value is not None)
