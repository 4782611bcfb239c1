"""One worker's meter: an event before and after each step, what was in it, and the way to the host.

On the step's own way lie only the events. Reading batches and measured times is done while the worker would wait
for the GPU anyway (`settle`), and by a thread where no further step comes.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from backends.engine.vllm_engine.metering.batch_reader import BatchReader, Composition, ScheduledBatch
from backends.engine.vllm_engine.metering.frame_sender import FrameSender
from backends.engine.vllm_engine.metering.frames import Mark, MeasuredStep
from backends.engine.vllm_engine.metering.gpu_clock import EventPool, GpuClock, GpuEvent, StepEvents

POOL_SIZE: Final = 128
_TOGETHER: Final = 32
_SETTLE_NS: Final = 20_000_000
_TIDY_SECONDS: Final = 0.005
_PREFILL_TOKENS: Final = 16  # a step of fewer has no forward pass worth timing by itself: an event costs 2 us


class MeteredStep:
    """A step on its way: launched, perhaps finished, not told yet."""

    __slots__ = ("awaits_output", "batch", "composition", "events", "has_forward", "launched_ns", "sampled")

    def __init__(self, batch: ScheduledBatch | None, events: StepEvents | None, launched_ns: int) -> None:
        self.batch = batch  # `None`: a dummy
        self.events = events  # `None`: nothing to measure, or no events left
        self.launched_ns = launched_ns
        self.composition: Composition | None = None
        self.has_forward = False
        self.awaits_output = False  # its output will say which drafts were accepted
        self.sampled: Mapping[str, int] | None = None

    @property
    def tokens(self) -> int:
        """Count what the step computes."""
        return self.batch.total_num_scheduled_tokens if self.batch is not None else 0

    @property
    def has_drafts(self) -> bool:
        """Say whether the step verifies drafts, so that how many tokens came of it is worth knowing."""
        return self.batch is not None and bool(self.batch.scheduled_spec_decode_tokens)

    def note_output(self, output: Any) -> None:
        """Learn how many tokens each sequence was given, from vLLM's ModelRunnerOutput."""
        names, tokens = getattr(output, "req_ids", None) or [], getattr(output, "sampled_token_ids", None) or []
        self.sampled = dict(zip(names, map(len, tokens), strict=False))
        self.awaits_output = False


class WorkerMeter:
    """Called by the worker's thread in the order begin, forward_done, end; `settle` by any."""

    def __init__(
        self,
        sender: FrameSender,
        make_event: Callable[[], GpuEvent],
        *,
        rank: int = 0,
        depth: int = 1,
        block_size: int = 16,
        now_ns: Callable[[], int] = time.monotonic_ns,
        stream: Any = None,
    ) -> None:
        """`stream` is what steps run on; `None`: the current one, which torch has to look up each time."""
        self._stream = stream
        self._sender = sender
        self._pool = EventPool(make_event, POOL_SIZE)
        self._clock = GpuClock(self._pool)
        self._reader = BatchReader(depth, block_size)
        self._is_leader = rank == 0
        self._now_ns = now_ns
        self._unread: deque[MeteredStep] = deque()
        self._pending: deque[MeteredStep] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._is_due = False
        self._settled_ns = 0
        self._newest: MeteredStep | None = None
        self._current: MeteredStep | None = None

    def mark(self, phase: str) -> None:
        """Tell at once of a new state of the engine."""
        with self._lock:
            self._sender.mark(Mark(self._now_ns(), phase))
            self._sender.flush(len(self._pending))

    def begin(self, batch: ScheduledBatch | None) -> None:
        """Start the clock of a step; `None` is a dummy, that computes for nobody."""
        events = self._pool.take()
        self._current = MeteredStep(batch, events, self._now_ns())
        if events is not None:
            events.first.record(self._stream)

    def forward_done(self) -> None:
        """Note the end of the forward pass, as far as it was launched."""
        step = self._current
        if step is not None and step.events is not None and step.tokens >= _PREFILL_TOKENS:
            step.events.middle.record(self._stream)
            step.has_forward = True

    def end(self) -> MeteredStep | None:
        """Stop the clock; gives the step, or `None` outside of one."""
        step, self._current = self._current, None
        if step is None:
            return None
        if step.events is not None:
            step.events.last.record(self._stream)
        batch = step.batch
        if batch is None or batch.finished_req_ids or batch.scheduled_new_reqs:
            self._is_due = True
        self._unread.append(step)
        self._newest = step
        return step

    def before_wait(self) -> None:
        """Use the time until an output is there, now and then: settling step by step would find cold caches.

        At once where an account may be waiting, or somebody new has to be announced.
        """
        if (
            self._is_due
            or len(self._unread) + len(self._pending) >= _TOGETHER
            or self._now_ns() - self._settled_ns >= _SETTLE_NS
        ):
            self.settle()

    def cancel(self) -> None:
        """Forget a step that failed to launch."""
        step, self._current = self._current, None
        if step is not None and step.events is not None:
            self._pool.give_back(step.events)

    def note_idle_batch(self, batch: ScheduledBatch) -> None:
        """Read a batch that computes nothing, which is how the engine tells who has ended."""
        self._unread.append(MeteredStep(batch, None, self._now_ns()))
        self.settle()
        self._wake.set()

    def settle(self) -> None:
        """Read what was launched and what has finished, and send it. Does nothing while another thread does it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._is_due, self._settled_ns = False, self._now_ns()
            self._read()
            steps = self._harvest()
            begun, ended = self._reader.take()
            if begun or steps or ended or self._sender.has_unsent:
                self._sender.add(begun if self._is_leader else [], steps, ended if self._is_leader else [])
                self._sender.flush(len(self._pending) + len(self._unread) + (self._current is not None))
        finally:
            self._lock.release()

    def start_tidying(self, enter: Callable[[], object]) -> None:
        """Let a thread settle what no further step would; `enter` is called in it first. It sleeps while steps come."""

        def tidy() -> None:
            enter()
            while not self._is_closed:
                self._wake.wait()
                self._wake.clear()
                newest = self._newest
                while newest is self._newest and not self._is_closed and self._has_more:
                    time.sleep(_TIDY_SECONDS)
                    self.settle()

        threading.Thread(target=tidy, name="step-meter", daemon=True).start()

    def close(self) -> None:
        """Tell what is left and stop."""
        self._is_closed = True
        self._wake.set()
        self.settle()
        self._sender.close()

    @property
    def _has_more(self) -> bool:
        return bool(self._pending or self._unread or self._sender.has_unsent)

    def _read(self) -> None:
        """Read batches in the order of their launch; one is in it as soon as it has ended, which is later."""
        while self._unread:
            step = self._unread.popleft()
            step.composition = self._reader.dummy() if step.batch is None else self._reader.read(step.batch)
            if step.composition is not None:
                self._pending.append(step)

    def _harvest(self) -> list[MeasuredStep]:
        pending, measured = self._pending, []
        newest = pending[-1].events if pending else None
        are_all_done = newest is not None and newest.last.query()
        while pending:
            step = pending[0]
            if step.events is None:  # never measured: its number stays a hole, and the host calls it lost
                pending.popleft()
                continue
            if step.awaits_output or not (are_all_done or step.events.last.query()):
                break
            pending.popleft()
            measured.append(self._measured(step, step.events))
        return measured

    def _measured(self, step: MeteredStep, events: StepEvents) -> MeasuredStep:
        times = self._clock.place(events, step.launched_ns, self._now_ns(), has_forward=step.has_forward)
        rows = step.composition
        assert rows is not None
        if not self._is_leader or not rows.keys:
            return MeasuredStep(rows.number, times.started_ns, times.busy_ns, times.forward_ns)
        if step.sampled is not None and rows.drafted:
            rows.note_sampled(step.sampled)
        discarded = [key in rows.discarded for key in rows.keys] if rows.discarded else []
        return MeasuredStep(
            number=rows.number,
            started_ns=times.started_ns,
            busy_ns=times.busy_ns,
            forward_ns=times.forward_ns,
            keys=rows.keys,
            scheduled=rows.scheduled,
            context=rows.context,
            logits=rows.logits,
            cached=rows.cached,
            phases=rows.phases,
            recompute=rows.recompute,
            drafted=rows.drafted,
            accepted=rows.accepted,
            discarded=discarded,
            shared=rows.shared,
        )
