"""Wraps vLLM's AsyncLLM; no other file starts or calls it.

A request's outputs are passed to its sink as soon as vLLM has produced them, by the collector from `add_request`. A
task per request, as in `generate()`, would wake up to 256 times in every step.
"""

import asyncio
import io
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import torch
import uvloop
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs.engine import tokens_input
from vllm.lora.request import LoRARequest
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import StatLoggerBase

from backends.engine.vllm_engine.failures import first_line
from backends.engine.vllm_engine.gauges import Gauges
from backends.engine.vllm_engine.llm_client import Adapter, LlmFacts, LlmPrompt, LlmRequest, LlmVector, Sink
from contracts.errors import ConfigurationError, TollkeeperError

_log = logging.getLogger(__name__)

T = TypeVar("T")

_CLOSE_SECONDS: Final = 10.0
_CANCEL_SECONDS: Final = 1.0


class _Parser(FlexibleArgumentParser):  # type: ignore[misc]  # vLLM is not installed where types are checked
    """vLLM's argument parser, which raises our error for invalid arguments instead of ending the process."""

    def error(self, message: str) -> Any:
        raise ConfigurationError(f"vLLM refuses its arguments: {message}; see TOLLKEEPER_ENGINE_VLLM_ARGUMENTS")


def engine_arguments(words: tuple[str, ...]) -> AsyncEngineArgs:
    """Parse the arguments with vLLM's own parser. Raises ConfigurationError."""
    parser = AsyncEngineArgs.add_cli_args(_Parser(add_help=False))
    try:
        return AsyncEngineArgs.from_cli_args(parser.parse_args(list(words)))
    except (ValueError, TypeError) as error:
        raise _refused(error) from error


def engine_config(arguments: AsyncEngineArgs) -> Any:
    """Build vLLM's configuration from its arguments. Raises ConfigurationError if they contradict each other."""
    grammars = getattr(arguments.structured_outputs_config, "backend", "")
    if grammars == "auto":
        raise ConfigurationError(
            "--structured-outputs-config leaves its backend to vLLM, with which one request's grammar can end the "
            "engine: name one, such as guidance"
        )
    try:
        # vLLM chooses batch sizes by the usage context; this is its own server's.
        return arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise _refused(error) from error


def _refused(error: Exception) -> ConfigurationError:
    return ConfigurationError(f"vLLM refuses its arguments: {first_line(error)}; see TOLLKEEPER_ENGINE_VLLM_ARGUMENTS")


class AsyncLlmClient:
    """Runs one AsyncLLM. Its event loop runs in the calling thread during `run` and `run_until`."""

    def __init__(self, config: Any, gauges: Gauges, *, can_sleep: bool = False) -> None:
        """Start vLLM's processes and load the model. Raises ConfigurationError if it does not start."""
        self._loop = uvloop.new_event_loop()
        self._is_waiting = False
        self._starting: dict[str, Callable[[], object] | None] = {}  # by request; the callback if it was aborted
        self._internal: dict[str, str] = {}  # vLLM's internal name of a request with several choices
        self._tasks: set[asyncio.Task[Any]] = set()
        self.can_sleep = can_sleep
        # vLLM cannot reload random weights, or weights of a model with adapters (0.25.1).
        self._can_reload = config.load_config.load_format != "dummy" and config.lora_config is None
        self._is_dropped = False
        self._llm = self._loop.run_until_complete(_start(config, gauges))
        try:
            self.facts = _facts(config)
            self.model_config = config.model_config
            self.reasoning_parser = str(config.structured_outputs_config.reasoning_parser or "")
            gauges.kv_blocks = self.facts.kv_blocks
        except BaseException:
            self.close()
            raise

    @property
    def tokenizer(self) -> Any:
        """Return vLLM's tokenizer, for its parsers."""
        return self._llm.get_tokenizer()

    # The event loop.

    def run_until(self, has_news: Callable[[], bool]) -> None:
        """Run the event loop until `has_news` returns True or vLLM has died."""
        while not has_news() and not self.is_dead:
            self._is_waiting = True
            self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; outputs that arrive meanwhile go to their sinks."""
        return self._loop.run_until_complete(work)

    def wake(self) -> None:
        """Make `run_until` check `has_news` again. From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._stop)
        except RuntimeError:
            _log.debug("vLLM's loop has closed")

    def at(self, monotonic_ns: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call a function at a time; return a function that cancels this."""

        def ring() -> None:
            callback()
            self._stop()

        return self._loop.call_at(monotonic_ns / 1e9, ring).cancel

    @property
    def is_dead(self) -> bool:
        """Return whether vLLM's process has died."""
        return bool(self._llm.errored)

    # Requests.

    def add(self, request: LlmRequest, sink: Sink) -> None:
        """Start a generation. Its outputs, or an exception, are passed to the sink."""
        self._begin(request.name, sink, lambda: self._generate(request))

    def embed(self, name: str, prompt: LlmPrompt, sink: Sink) -> None:
        """Start embedding one input. Its vector, or an exception, is passed to the sink."""
        self._begin(name, lambda output: sink(_vector(output)), lambda: self._encode(name, prompt))

    def abort(self, name: str, choice: int | None = None, *, then: Callable[[], object] = lambda: None) -> None:
        """Abort a request, or one choice of it. Its last output may still arrive.

        `then` is called once vLLM has processed the abort: later schedules do not include the request.
        """
        if name in self._starting:
            self._starting[name] = then
        elif choice is None:
            self._internal.pop(name, None)
            self._spawn(self._abort(name, then))
        elif name in self._internal:
            self._spawn(self._llm.abort(f"{choice}_{self._internal[name]}", internal=True))

    def _begin(self, name: str, sink: Sink, add: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._starting[name] = None
        self._spawn(self._follow(name, sink, add))

    async def _follow(self, name: str, sink: Sink, add: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            collector = await add()
        except Exception as error:  # one request's failure must not end the others
            if not isinstance(error, ValueError | TollkeeperError):
                _log.exception("vLLM did not accept a request name=%s", name)
            follows = self._starting.pop(name)
            if follows is not None:
                follows()
            sink(error)
            self._stop()
            return

        def put(output: Any) -> None:
            if getattr(output, "finished", True):
                self._internal.pop(name, None)
            sink(output)
            self._stop()

        self._internal[name] = collector.request_id
        collector.put = put
        if collector.output is not None:  # it arrived while the request was being sent
            put(collector.output)
        follows = self._starting.pop(name)
        if follows is not None:
            await self._abort(name, follows)

    async def _abort(self, name: str, then: Callable[[], object]) -> None:
        try:
            await self._llm.abort(name)
            await self._llm.is_sleeping()  # answered by the scheduling process after everything sent before
        finally:
            then()
            self._stop()

    async def _generate(self, request: LlmRequest) -> Any:
        constraint = StructuredOutputsParams(**request.constraint) if request.constraint else None
        parameters = SamplingParams(
            **request.sampling,
            structured_outputs=constraint,
            output_kind=RequestOutputKind.DELTA,
            skip_clone=True,  # they are not shared with other requests
        )
        return await self._llm.add_request(
            request.name,
            await self._prompt(request.prompt),
            parameters,
            lora_request=None if request.adapter is None else _lora(request.adapter),
            priority=request.priority,
            reasoning_ended=request.is_past_reasoning,
        )

    async def _encode(self, name: str, prompt: LlmPrompt) -> Any:
        return await self._llm.add_request(name, await self._prompt(prompt), PoolingParams(task="embed"))

    async def _prompt(self, prompt: LlmPrompt) -> Any:
        salt = prompt.cache_salt or None
        if not prompt.images:
            return tokens_input(prompt.token_ids, cache_salt=salt)
        from PIL import Image as Images  # only needed by models with image input

        def decode(data: bytes) -> Any:
            return Images.open(io.BytesIO(data)).convert("RGB")

        pictures = await asyncio.gather(*(asyncio.to_thread(decode, one.data) for one in prompt.images))
        parts = {
            "prompt_token_ids": prompt.token_ids,
            "multi_modal_data": {"image": list(pictures)},
            "multi_modal_uuids": {"image": [one.sha256.hex() for one in prompt.images]},
        }
        extras = {} if salt is None else {"cache_salt": salt}
        (rendered,) = await self._llm.renderer.render_cmpl_async([parts], prompt_extras=extras)
        return rendered

    # Adapters and sleep.

    async def add_adapter(self, adapter: Adapter) -> None:
        """Load an adapter. Raises any exception of vLLM's."""
        if not await self._llm.add_lora(_lora(adapter)):
            raise ValueError("it was not added")

    async def remove_adapter(self, adapter: Adapter) -> None:
        """Unload an adapter."""
        await self._llm.remove_lora(adapter.number)

    async def reset_prefix_cache(self) -> None:
        """Empty the prefix cache."""
        await self._llm.reset_prefix_cache()

    async def sleep(self, level: int) -> None:
        """Release GPU memory. At level 1 weights move to host memory; at level 2 they are dropped, if they can be
        reloaded.

        Raises ConfigurationError if vLLM was started without sleep mode.
        """
        if not self.can_sleep:
            raise ConfigurationError("vLLM was started without --enable-sleep-mode, so it cannot sleep")
        self._is_dropped = level > 1 and self._can_reload
        await self._llm.sleep(2 if self._is_dropped else 1, mode="wait")

    async def wake_up(self) -> None:
        """Restore GPU memory; dropped weights are read from disk."""
        await self._llm.wake_up()
        if self._is_dropped:
            await self._llm.collective_rpc("reload_weights")
            await self._llm.reset_prefix_cache()

    def close(self) -> None:
        """End vLLM's processes."""
        self._llm.shutdown(timeout=_CLOSE_SECONDS)
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        if pending:
            self._loop.run_until_complete(asyncio.wait(pending, timeout=_CANCEL_SECONDS))
        self._loop.close()

    # Helpers.

    def _stop(self) -> None:
        """Stop `run_until`, only once: with uvloop, a second call would end its next run at once."""
        if self._is_waiting:
            self._is_waiting = False
            self._loop.stop()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a call of vLLM failed", exc_info=task.exception())


async def _start(config: Any, gauges: Gauges) -> AsyncLLM:
    class Statistics(StatLoggerBase):  # type: ignore[misc]  # vLLM is not installed where types are checked
        """Forwards vLLM's statistics of each step. vLLM creates one for each of its engines."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            """Need nothing."""

        def record(self, scheduler_stats: Any, iteration_stats: Any, *rest: Any, **others: Any) -> None:
            """Record one step."""
            gauges.note(scheduler_stats, iteration_stats)

        def log_engine_initialized(self) -> None:
            """Do nothing: the host does."""

    return AsyncLLM.from_vllm_config(
        config,
        usage_context=UsageContext.OPENAI_API_SERVER,
        stat_loggers=[Statistics],
        disable_log_stats=True,  # no log lines by vLLM; our gauges still get the statistics
    )


def _facts(config: Any) -> LlmFacts:
    model, parallel = config.model_config, config.parallel_config
    is_pooling = model.runner_type == "pooling"
    return LlmFacts(
        kind="embed" if is_pooling else "generate",
        context_tokens=int(model.max_model_len),
        vocabulary=int(model.get_vocab_size()),
        block_size=int(config.cache_config.block_size),
        kv_blocks=int(config.cache_config.num_gpu_blocks or 0),
        dimensions=int(model.get_hidden_size()) if is_pooling else 0,
        accepts_images=bool(model.is_multimodal_model),
        ranks=int(parallel.world_size),
    )


def _lora(adapter: Adapter) -> LoRARequest:
    return LoRARequest(lora_name=adapter.name, lora_int_id=adapter.number, lora_path=str(adapter.path))


def _vector(output: Any) -> Any:
    if isinstance(output, BaseException):
        return output
    data = output.outputs.data.to(torch.float32).cpu().contiguous()
    return LlmVector(data.numpy().astype("<f4", copy=False).tobytes(), int(data.numel()))
