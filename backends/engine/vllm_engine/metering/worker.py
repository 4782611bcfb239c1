"""vLLM's GPU worker with a meter: the `worker_cls` of the vLLM host, and of a `vllm serve` that is metered.

Imported by vLLM in the processes that own GPUs, never by the host itself.
"""

import os
import time
from pathlib import Path
from typing import Any

import torch
from vllm.v1.outputs import AsyncModelRunnerOutput
from vllm.v1.worker.gpu_worker import Worker

from backends.engine.vllm_engine.metering.frame_sender import FrameSender
from backends.engine.vllm_engine.metering.frames import SOCKET_VARIABLE, Mark
from backends.engine.vllm_engine.metering.launched_steps import MeteredStep
from backends.engine.vllm_engine.metering.parent_death import die_with_parent
from backends.engine.vllm_engine.metering.step_ring import load_ring_module
from backends.engine.vllm_engine.metering.worker_meter import WorkerMeter


def _timing_event() -> Any:
    """Return a CUDA event of torch's C class: its Python wrapper costs as much time as the event itself."""
    try:
        return torch._C._CudaEventBase(enable_timing=True)
    except (AttributeError, TypeError):  # another release of torch
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]


class DraftedOutput(AsyncModelRunnerOutput):  # type: ignore[misc]  # vLLM is not in the environment that is checked
    """The pending output of a step with drafts; reports which of them were accepted once it is ready."""

    def __init__(self, output: Any, step: MeteredStep) -> None:
        self._output = output
        self._step = step
        step.awaits_output = True

    def get_output(self) -> Any:
        """Wait for vLLM's output, report its accepted drafts, and return it."""
        output = self._output.get_output()
        if self._step.awaits_output:
            self._step.note_output(output)
        return output


class MeteredWorker(Worker):  # type: ignore[misc]  # vLLM is not in the environment that is checked
    """Measures each step with pooled CUDA events on the stream that the step runs on, without waiting for the GPU."""

    _meter: WorkerMeter | None = None
    _sender: FrameSender | None = None
    _is_on: bool = True

    def init_device(self) -> None:
        """Initialize the device, and tie this process's life to that of its parent."""
        die_with_parent()
        super().init_device()

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        """Report that loading begins, and load the model."""
        self._mark("load")
        return super().load_model(*args, **kwargs)

    def compile_or_warm_up_model(self) -> Any:
        """Compile, capture CUDA graphs and warm up; then start metering."""
        self._mark("warmup")
        result = super().compile_or_warm_up_model()
        if self._sender is not None:
            device = self.device
            stream = torch.cuda.current_stream()  # this thread's, which steps run on too
            module = load_ring_module()
            if module is not None:
                self._sender.send_with(module.send)
            self._meter = WorkerMeter(
                self._sender,
                _timing_event if module is None else module.make_event,
                rank=self.rank,
                depth=self.vllm_config.max_concurrent_batches,
                block_size=self.vllm_config.cache_config.block_size,
                stream=stream if module is None else stream.cuda_stream,
                ring=None if module is None else module.ring(stream.cuda_stream),
            )
            self._meter.start_tidying(lambda: torch.cuda.set_device(device))
            self._meter.mark("load")  # loading continues: the engine's scheduler is created after the workers
        return result

    def execute_model(self, scheduler_output: Any) -> Any:
        """Launch a forward pass between two events."""
        meter = self._meter
        if meter is None or not self._is_on:
            return super().execute_model(scheduler_output)
        if not scheduler_output.total_num_scheduled_tokens:
            output = super().execute_model(scheduler_output)
            meter.note_idle_batch(scheduler_output)
            return output
        ring = meter.ring
        is_in_ring = ring is not None and ring.begin(scheduler_output)
        if not is_in_ring:
            meter.begin(scheduler_output)
        try:
            output = super().execute_model(scheduler_output)
        except BaseException:
            meter.cancel()
            raise
        if not is_in_ring:
            meter.launched()
        if output is not None:  # a pooling model's step ends here, and so does a failed one's
            return self._ended(meter, output)
        return None

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Launch sampling, and end the step's measurement after it."""
        output = super().sample_tokens(grammar_output)
        meter = self._meter
        if meter is None or (meter.ring is not None and meter.ring.end()):
            return output
        return self._ended(meter, output)

    def execute_dummy_batch(self) -> None:
        """Run and measure a dummy step, which keeps this rank in step with others."""
        if self._meter is None:
            super().execute_dummy_batch()
            return
        self._meter.begin(None)
        super().execute_dummy_batch()
        self._meter.end()
        self._meter.settle()

    def sleep(self, level: int = 1) -> None:
        """Report that sleep begins, and free the GPU's memory."""
        self._mark("sleep")
        super().sleep(level)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Allocate the GPU's memory again, and report that sleep has ended."""
        super().wake_up(tags)
        self._mark("")

    def set_metering(self, enabled: bool) -> None:
        """Enable or disable metering from the next step on. Unmeasured steps are reported as lost."""
        if self._meter is not None:
            self._meter.stop_ring()
            self._meter.settle()
        self._is_on = enabled

    def shutdown(self) -> None:
        """Report the last steps, then shut down."""
        if self._meter is not None:
            self._meter.close()
            self._meter = None
        super().shutdown()

    def _ended(self, meter: WorkerMeter, output: Any) -> Any:
        if meter.ring is not None and meter.ring.end():
            return output
        step = meter.end()
        if step is None or output is None or not isinstance(step, MeteredStep) or not step.has_drafts:
            return output
        if isinstance(output, AsyncModelRunnerOutput):
            return DraftedOutput(output, step)
        step.note_output(output)
        return output

    def _mark(self, phase: str) -> None:
        if self._meter is not None:
            self._meter.mark(phase)
            return
        path = os.environ.get(SOCKET_VARIABLE)
        if path and self._sender is None:
            self._sender = FrameSender(Path(path), self.rank)
        if self._sender is not None:
            self._sender.mark(Mark(time.monotonic_ns(), phase))
            self._sender.flush(in_flight=0)
