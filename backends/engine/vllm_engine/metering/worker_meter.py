"""One worker's meter: records events around each step, reads what the step computes, and sends both to the host.

Only the events and one look at the batch lie on the step's own path. The batch is released at once: keeping it would
mean reading and freeing cold memory later. Times are read now and then, right after a forward pass was launched so that
the GPU has work (`launched`), or by a thread if no further step comes. For small models the CPU is the bottleneck and
each microsecond delays every token. So a small step like the one before it has one event only, and with a ring
(step_ring.py) nothing else is done per step: compositions are computed for many steps together.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from backends.engine.vllm_engine.metering.batch_reader import BatchReader, ScheduledBatch
from backends.engine.vllm_engine.metering.composition import Composition, Repeat, SteadyRun
from backends.engine.vllm_engine.metering.frame_sender import FrameSender
from backends.engine.vllm_engine.metering.frames import Mark, MeasuredStep
from backends.engine.vllm_engine.metering.gpu_clock import EventPool, GpuClock, GpuEvent
from backends.engine.vllm_engine.metering.launched_steps import MeteredStep, SteadyStep, Step
from backends.engine.vllm_engine.metering.step_ring import StepRing

POOL_SIZE: Final = 128
# Steps read together. One by one would find cold CPU caches; 112 at once would stop a stream for 1 ms, seen in its p99.
_TOGETHER: Final = 32
_SETTLE_NS: Final = 20_000_000
_TIDY_SECONDS: Final = 0.005
_WHOLE_EVERY: Final = 256  # steps between two that are sent with all columns: the most that one loss makes unreadable
_PREFILL_TOKENS: Final = 16  # below this the forward pass is not timed by itself: an event costs 2 us
_ANCHOR_EVERY: Final = 32  # maximum number of steps between two anchors
_ANCHOR_NS: Final = 100_000_000  # maximum time between two; clocks that differ by 1 ppm drift by 0.1 us in it
_RING_STEPS: Final = 64  # maximum number of steps in the ring between two anchors


class WorkerMeter:
    """Meter of one worker. Its thread calls begin, forward_done or launched, then end; any thread may call `settle`."""

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
        ring: StepRing | None = None,
    ) -> None:
        """`stream` is what steps run on; `None`: the current one, whose lookup costs torch 10 us or more.

        With a `ring`, the worker calls `ring.begin` first, and `begin` here only if the ring does not accept the step.
        """
        self._stream = stream
        self.ring = ring
        self._sender = sender
        self._pool = EventPool(make_event, POOL_SIZE)
        self._clock = GpuClock(self._pool, ring)
        self._reader = BatchReader(depth, block_size)
        self._is_leader = rank == 0
        self._now_ns = now_ns
        self._pending: deque[Step | SteadyRun] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._is_due = False
        self._settled_ns = 0
        self._has_drafts = False  # whether any step so far had drafts
        self._unanchored = _ANCHOR_EVERY  # steps since the last anchor; at the start, so many that one is due
        self._anchored_ns = 0
        self._newest: Step | None = None
        self._told: Composition | Repeat | None = None  # rows of the step that was reported last
        self._current: Step | None = None

    def mark(self, phase: str) -> None:
        """Report a new state of the engine at once."""
        with self._lock:
            self._sender.mark(Mark(self._now_ns(), phase))
            self._sender.flush(len(self._pending))

    def begin(self, batch: ScheduledBatch | None) -> None:
        """Start measuring a step; `None` is a dummy step, which computes for no request."""
        self.stop_ring()
        events = self._pool.take()
        if batch is not None and batch.total_num_scheduled_tokens < _PREFILL_TOKENS and self._reader.is_steady(batch):
            launched_ns = self._now_ns()
            is_anchor = self._unanchored >= _ANCHOR_EVERY or launched_ns - self._anchored_ns >= _ANCHOR_NS
            self._current = SteadyStep(events, launched_ns, is_anchor or self.ring is not None)
            if not self._current.has_first:
                self._unanchored += 1
                if events is None:  # the next step cannot be timed from the end of an unmeasured one
                    self._unanchored = _ANCHOR_EVERY
                return
        else:
            self._current = MeteredStep(batch, events, self._now_ns())
            if batch is None or batch.finished_req_ids or batch.scheduled_new_reqs:
                self._is_due = True
        self._anchor(self._current)

    def forward_done(self) -> None:
        """Record the event after the forward pass, if the step is large enough."""
        step = self._current
        if isinstance(step, MeteredStep) and step.events is not None and step.tokens >= _PREFILL_TOKENS:
            step.events.middle.record(self._stream)
            step.has_forward = True

    def launched(self) -> None:
        """Record the event after the forward pass; then read earlier steps while the GPU is busy."""
        step = self._current
        if step is None:
            return
        if isinstance(step, SteadyStep):
            self._read(step)
            if self.ring is not None and step.events is not None:
                self.ring.await_like(*self._reader.awaited(), _RING_STEPS, _ANCHOR_NS)
        else:
            self.forward_done()
            self._read(step)
        # At once if an account may wait for it, or a new sequence has to be announced.
        if self._is_due or len(self._pending) > _TOGETHER or step.launched_ns - self._settled_ns >= _SETTLE_NS:
            self.settle()

    def end(self) -> Step | None:
        """Record the event at the end; return the step, or `None` if none was begun."""
        step = self._current
        if step is None:
            return None
        self._current = None
        if step.events is not None:
            step.events.last.record(self._stream)
        step.is_ended = True
        if not step.is_launched:
            self._read(step)
        self._newest = step
        return step

    def cancel(self) -> None:
        """Discard a step that failed to launch."""
        if self.ring is not None and self.ring.cancel():
            return
        step, self._current = self._current, None
        if step is not None and step.events is not None:
            self._pool.give_back(step.events)
        self._unanchored = _ANCHOR_EVERY  # parts of it may have run, so the next step cannot be timed from an end

    def note_idle_batch(self, batch: ScheduledBatch) -> None:
        """Read a batch that computes nothing: the engine reports ended sequences in it."""
        self.stop_ring()
        self._read(MeteredStep(batch, None, self._now_ns()))
        self.settle()
        self._wake.set()

    def settle(self) -> None:
        """Read the times of finished steps, and send them. Does nothing if another thread is doing it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._is_due, self._settled_ns = False, self._now_ns()
            self._fold()
            steps = self._harvest()
            begun, ended = self._reader.take()
            if begun or steps or ended or self._sender.has_unsent:
                dropped = self._sender.dropped
                self._sender.add(begun if self._is_leader else [], steps, ended if self._is_leader else [])
                if self._sender.dropped > dropped:
                    self._told = None  # the rows that the next step would refer to may be lost: send it with its own
                current = self._current
                is_apart = current is not None and not current.is_launched
                self._sender.flush(len(self._pending) + is_apart)
        finally:
            self._lock.release()

    def stop_ring(self) -> None:
        """Stop the ring, and read the steps that it has."""
        if self.ring is not None:
            self.ring.stop()
            with self._lock:
                self._fold()

    def start_tidying(self, enter: Callable[[], object]) -> None:
        """Start a thread that settles when no further step does. It calls `enter` first, and sleeps while
        steps come.
        """

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
        """Report the remaining steps and stop."""
        self._is_closed = True
        self._wake.set()
        self.settle()
        self._sender.close()

    @property
    def _has_more(self) -> bool:
        return bool(self._pending or self._sender.has_unsent)

    def _anchor(self, step: Step) -> None:
        """Record a step's first event. If it has no events, the next step must be an anchor."""
        if step.events is None:
            self._unanchored = _ANCHOR_EVERY
            return
        step.launched_ns = self._now_ns()  # right before the event: a delay between the two would shift later ends
        step.events.first.record(self._stream)
        self._unanchored, self._anchored_ns = 0, step.launched_ns

    def _fold(self) -> None:
        """Move the ring's steps into `_pending` as one run. Call with the lock held, because sequences are updated."""
        count = self.ring.take() if self.ring is not None else 0
        if count:
            self._pending.append(self._reader.steady_run(count))

    def _read(self, step: Step) -> None:
        """Read a step's batch, in the order of launches, and release it."""
        reader = self._reader
        if isinstance(step, SteadyStep):
            step.composition = reader.steady_step()
            self._pending.append(step)
            return
        batch = step.batch
        step.is_launched, step.batch = True, None
        self._has_drafts = self._has_drafts or step.has_drafts
        if batch is not None and reader.is_steady(batch):
            step.composition = reader.steady_step()
        else:
            with self._lock:  # another thread may be sending begins and ends
                step.composition = reader.dummy() if batch is None else reader.read(batch)
        if step.composition is not None:
            self._pending.append(step)

    def _harvest(self) -> list[MeasuredStep]:
        pending, measured = self._pending, []
        done = self._done()
        seen_ns = self._now_ns()
        for _ in range(done):
            step = pending.popleft()
            if isinstance(step, SteadyRun):
                measured += self._told_of_run(step, self._clock.follow_ring(step.count, seen_ns))
            elif step.events is None:  # never measured: its number stays a gap, which the host reports as lost
                continue
            elif isinstance(step, SteadyStep) and not step.has_first:
                started_ns, busy_ns = self._clock.follow(step.events, step.launched_ns, seen_ns)
                measured.append(self._told_of(step.composition, started_ns, busy_ns))
            else:
                times = self._clock.place(step.events, step.launched_ns, seen_ns, has_forward=step.has_forward)
                measured.append(
                    self._told_of(step.composition, times.started_ns, times.busy_ns, times.forward_ns, step.sampled)
                )
        if pending and isinstance(run := pending[0], SteadyRun):  # some of its steps may have finished
            times_ns = self._clock.follow_ring(run.count, seen_ns)
            measured += self._told_of_run(run, times_ns)
            run.drop(len(times_ns) // 2)
            if not run.count:
                pending.popleft()
        return measured

    def _done(self) -> int:
        """Return how many entries at the front of `_pending` the GPU has finished."""
        pending = list(self._pending)  # a copy: the worker may launch a step meanwhile
        count = len(pending)
        if self._has_drafts:
            count = next(
                (at for at, one in enumerate(pending) if not isinstance(one, SteadyRun) and one.awaits_output), count
            )
        done = 0
        for place in range(count - 1, -1, -1):
            step = pending[place]
            if isinstance(step, SteadyRun):
                continue
            if step.is_ended and step.events is not None and step.events.last.query():
                done = place + 1
                break
        while done < count and not isinstance(step := pending[done], SteadyRun) and step.events is None:
            done += 1
        return done

    def _told_of_run(self, run: SteadyRun, times_ns: list[int]) -> list[MeasuredStep]:
        """Return a run's first steps (two times each), joined into one message if they need no rows of their own."""
        told: list[MeasuredStep] = []
        number, end = run.number, run.number + len(times_ns) // 2
        while number < end:
            at = 2 * (number - run.number)
            rows, stop = run.at(number), number + 1
            if self._can_refer(rows):
                while stop < end and stop % _WHOLE_EVERY and not (stop in run.recent and run.recent[stop].discarded):
                    stop += 1
            one = self._told_of(rows, times_ns[at], times_ns[at + 1])
            if stop > number + 1:
                one = MeasuredStep(
                    number, one.started_ns, one.busy_ns, again=True, then=times_ns[at + 2 : 2 * (stop - run.number)]
                )
                self._told = run.at(stop - 1)
            told.append(one)
            number = stop
        return told

    def _can_refer(self, rows: Composition | Repeat) -> bool:
        """Return whether a step's rows are those of the last reported step, each one token further."""
        is_whole = rows.number % _WHOLE_EVERY == 0
        return not is_whole and isinstance(rows, Repeat) and not rows.discarded and rows.follows(self._told)

    def _told_of(
        self,
        rows: Composition | Repeat | None,
        started_ns: int,
        busy_ns: int,
        forward_ns: int | None = None,
        sampled: Mapping[str, int] | None = None,
    ) -> MeasuredStep:
        assert rows is not None
        can_refer = self._can_refer(rows)
        self._told = rows
        if can_refer:
            return MeasuredStep(rows.number, started_ns, busy_ns, forward_ns, again=True)
        if not self._is_leader or not rows.keys:
            return MeasuredStep(rows.number, started_ns, busy_ns, forward_ns)
        if sampled is not None and rows.drafted:
            rows.note_sampled(sampled)
        discarded = [key in rows.discarded for key in rows.keys] if rows.discarded else []
        return MeasuredStep(
            number=rows.number,
            started_ns=started_ns,
            busy_ns=busy_ns,
            forward_ns=forward_ns,
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
