"""One worker's meter: an event before and after each step, what was in it, and the way to the host.

On the step's own way lie the events, and a look at its batch, which is let go at once: kept, it would be cold memory to
read and to free. Measured times are read now and then, once a forward pass has been launched and the GPU has work
(`launched`), and by a thread where no further step comes. Where all waits for the CPU, each microsecond of it is one of
every token's: little is done, and nothing twice.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from backends.engine.vllm_engine.metering.batch_reader import BatchReader, Composition, Repeat, ScheduledBatch
from backends.engine.vllm_engine.metering.frame_sender import FrameSender
from backends.engine.vllm_engine.metering.frames import Mark, MeasuredStep
from backends.engine.vllm_engine.metering.gpu_clock import EventPool, GpuClock, GpuEvent, StepEvents

POOL_SIZE: Final = 128
# Step by step, settling would find cold caches; 112 at once stop a stream for a millisecond, which its p99 shows.
_TOGETHER: Final = 32
_SETTLE_NS: Final = 20_000_000
_TIDY_SECONDS: Final = 0.005
_WHOLE_EVERY: Final = 256  # steps: whatever became of one, at most so many after it cannot be read
_PREFILL_TOKENS: Final = 16  # a step of fewer has no forward pass worth timing by itself: an event costs 2 us


class MeteredStep:
    """A step on its way: launched, perhaps finished, not told yet."""

    __slots__ = (
        "awaits_output",
        "batch",
        "composition",
        "events",
        "has_drafts",
        "has_forward",
        "is_ended",
        "is_launched",
        "launched_ns",
        "sampled",
    )

    def __init__(self, batch: ScheduledBatch | None, events: StepEvents | None, launched_ns: int) -> None:
        self.batch = batch  # `None`: a dummy, or read
        self.events = events  # `None`: nothing to measure, or no events left
        self.launched_ns = launched_ns
        self.composition: Composition | Repeat | None = None
        self.has_forward = self.is_launched = self.is_ended = False
        # Whether it verifies drafts, so that how many tokens came of it is worth knowing.
        self.has_drafts = batch is not None and bool(batch.scheduled_spec_decode_tokens)
        self.awaits_output = False  # its output will say which drafts were accepted
        self.sampled: Mapping[str, int] | None = None

    @property
    def tokens(self) -> int:
        """Count what the step computes."""
        return self.batch.total_num_scheduled_tokens if self.batch is not None else 0

    def note_output(self, output: Any) -> None:
        """Learn how many tokens each sequence was given, from vLLM's ModelRunnerOutput."""
        names, tokens = getattr(output, "req_ids", None) or [], getattr(output, "sampled_token_ids", None) or []
        self.sampled = dict(zip(names, map(len, tokens), strict=False))
        self.awaits_output = False


class WorkerMeter:
    """Called by the worker's thread in the order begin, forward_done or launched, end; `settle` by any."""

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
        """`stream` is what steps run on; `None`: the current one, which torch takes 10 us or more to look up."""
        self._stream = stream
        self._sender = sender
        self._pool = EventPool(make_event, POOL_SIZE)
        self._clock = GpuClock(self._pool)
        self._reader = BatchReader(depth, block_size)
        self._is_leader = rank == 0
        self._now_ns = now_ns
        self._pending: deque[MeteredStep] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._is_due = False
        self._settled_ns = 0
        self._newest: MeteredStep | None = None
        self._told: Composition | Repeat | None = None  # of the step that was told last
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
        if batch is None or batch.finished_req_ids or batch.scheduled_new_reqs:
            self._is_due = True

    def forward_done(self) -> None:
        """Note the end of the forward pass, as far as it was launched."""
        step = self._current
        if step is not None and step.events is not None and step.tokens >= _PREFILL_TOKENS:
            step.events.middle.record(self._stream)
            step.has_forward = True

    def launched(self) -> None:
        """Note the end of the forward pass, and use that the GPU has something to do."""
        step = self._current
        if step is None:
            return
        if step.events is not None and step.tokens >= _PREFILL_TOKENS:
            self.forward_done()
        self._read(step)
        # At once where an account may be waiting, or somebody new has to be announced.
        if self._is_due or len(self._pending) > _TOGETHER or step.launched_ns - self._settled_ns >= _SETTLE_NS:
            self.settle()

    def end(self) -> MeteredStep | None:
        """Stop the clock; gives the step, or `None` outside of one."""
        step, self._current = self._current, None
        if step is None:
            return None
        if step.events is not None:
            step.events.last.record(self._stream)
        step.is_ended = True
        if not step.is_launched:
            self._read(step)
        self._newest = step
        return step

    def cancel(self) -> None:
        """Forget a step that failed to launch."""
        step, self._current = self._current, None
        if step is not None and step.events is not None:
            self._pool.give_back(step.events)

    def note_idle_batch(self, batch: ScheduledBatch) -> None:
        """Read a batch that computes nothing, which is how the engine tells who has ended."""
        self._read(MeteredStep(batch, None, self._now_ns()))
        self.settle()
        self._wake.set()

    def settle(self) -> None:
        """Read the times of what has finished, and send it. Does nothing while another thread does it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._is_due, self._settled_ns = False, self._now_ns()
            steps = self._harvest()
            begun, ended = self._reader.take()
            if begun or steps or ended or self._sender.has_unsent:
                dropped = self._sender.dropped
                self._sender.add(begun if self._is_leader else [], steps, ended if self._is_leader else [])
                if self._sender.dropped > dropped:
                    self._told = None  # what the next step would refer to may be gone: it is told whole
                current = self._current
                is_apart = current is not None and not current.is_launched
                self._sender.flush(len(self._pending) + is_apart)
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
        return bool(self._pending or self._sender.has_unsent)

    def _read(self, step: MeteredStep) -> None:
        """Read a step's batch, in the order of launches, and let go of it."""
        batch, reader = step.batch, self._reader
        step.is_launched, step.batch = True, None
        if batch is not None and reader.is_steady(batch):
            step.composition = reader.steady_step()
        else:
            with self._lock:  # who begins and ends may be being told by the other thread
                step.composition = reader.dummy() if batch is None else reader.read(batch)
        if step.composition is not None:
            self._pending.append(step)

    def _harvest(self) -> list[MeasuredStep]:
        pending, measured = self._pending, []
        done = self._done()
        seen_ns = self._now_ns()
        for _ in range(done):
            step = pending.popleft()
            if step.events is not None:  # else never measured: its number stays a hole, and the host calls it lost
                measured.append(self._measured(step, step.events, seen_ns))
        return measured

    def _done(self) -> int:
        """Count the steps at the front that the GPU has done: the newest that it has, and all before it."""
        pending = list(self._pending)  # a copy: the worker may launch a step meanwhile
        count = next((place for place, step in enumerate(pending) if step.awaits_output), len(pending))
        done = 0
        for place in range(count - 1, -1, -1):
            step = pending[place]
            if step.events is not None and step.is_ended and step.events.last.query():
                done = place + 1
                break
        while done < count and pending[done].events is None:
            done += 1
        return done

    def _measured(self, step: MeteredStep, events: StepEvents, seen_ns: int) -> MeasuredStep:
        times = self._clock.place(events, step.launched_ns, seen_ns, has_forward=step.has_forward)
        rows, told = step.composition, self._told
        assert rows is not None
        self._told = rows
        can_refer = rows.number % _WHOLE_EVERY != 0
        if can_refer and isinstance(rows, Repeat) and not rows.discarded and rows.follows(told):
            return MeasuredStep(rows.number, times.started_ns, times.busy_ns, times.forward_ns, again=True)
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
