"""The host's meter of a vLLM engine: receives the workers' measurements, and returns step records and accounts."""

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from algorithms.gpu_time.ledger_clock import Lifecycle
from algorithms.gpu_time.step_model import StepRow
from backends.engine.base import Facts
from backends.engine.step_book import QueueFacts, StepBook
from backends.engine.vllm_engine.metering.frames import SOCKET_VARIABLE, Mark, decode_frame
from backends.engine.vllm_engine.metering.refits import other_process
from backends.engine.vllm_engine.metering.request_book import RequestBook
from backends.engine.vllm_engine.metering.step_splitter import StepSplitter
from backends.engine.vllm_engine.step_metering import Account
from contracts.errors import ConfigurationError, InvalidRecord
from contracts.recording.records import StepRecord

_log = logging.getLogger(__name__)

WORKER: Final = "backends.engine.vllm_engine.metering.worker.MeteredWorker"
_MAX_FRAME: Final = 1 << 20
_BUFFER_BYTES: Final = 8 << 20
_STEPS_A_TURN: Final = 4  # few enough to be split between two tokens of a fast stream without delaying it
_MAX_BACKLOG: Final = 256
_PHASES: Final[dict[str, Lifecycle | None]] = {"load": "load", "warmup": "warmup", "sleep": "sleep", "": None}


@dataclass(frozen=True, slots=True)
class MeterOptions:
    """`ranks` is the number of workers that step together, `directory` the folder of the socket (`None`: a new one).

    `path` is the socket itself, for workers that another process starts; that process must pass them the path.
    """

    model: str
    ranks: int = 1
    directory: Path | None = None
    block_size: int = 16
    devices: tuple[str, ...] = ()
    make_executor: Callable[[], Executor] = other_process  # runs the fits of the step model
    path: Path | None = None


class VllmMeter:
    """Meter of one engine, used by the thread that steps it. Created before vLLM starts, which inherits the socket's
    path.

    Raises ConfigurationError if the workers' socket cannot be created.
    """

    def __init__(self, book: StepBook, options: MeterOptions) -> None:
        self._book = book
        self._requests = RequestBook()
        self._splitter = StepSplitter(
            book,
            self._requests,
            ranks=options.ranks,
            devices=options.devices,
            block_size=options.block_size,
            make_executor=options.make_executor,
        )
        self._folder = None if options.path else Path(tempfile.mkdtemp(prefix="meter-", dir=options.directory))
        self._path = options.path or Path(f"{self._folder}/s")
        self.engine_args: dict[str, object] = {"worker_cls": WORKER}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._buffer = memoryview(bytearray(_MAX_FRAME))
        self._unreadable = 0
        self._dropped: dict[int, int] = {}
        try:
            if options.path is not None:
                options.path.unlink(missing_ok=True)  # of an earlier process
            self._socket.bind(str(self._path))
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"the workers' socket {self._path} cannot be made: {error.strerror or error}; a path may have 107 "
                "bytes, so set TOLLKEEPER_DATA to a shorter one"
            ) from error
        os.chmod(self._path, 0o600)
        # vLLM's processes inherit it. In vLLM's own configuration it would become part of the key under which compiled
        # code is cached, so that every start would compile again.
        if options.path is None:
            os.environ[SOCKET_VARIABLE] = str(self._path)

    @property
    def socket_path(self) -> Path:
        """Return the path of the socket that workers send to."""
        return self._path

    def lifecycle(self, phase: Lifecycle | None) -> None:
        """Record that the engine loads, warms up or sleeps from now on; `None`: that it serves."""
        self.collect()  # the workers' own marks are older
        self._book.lifecycle(phase)

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record that from `at_ns` on the engine has runnable requests, or none."""
        self._book.queue(at_ns, runnable=runnable)

    def begin(self, request_id: bytes, tenant: str, prompt_tokens: int, payer_id: bytes = b"") -> None:
        """Register a request. Called before vLLM gets it."""
        self._requests.begin(request_id, tenant, payer_id)

    def collect(self) -> None:
        """Read the workers' messages. Does not block, and splits only a few steps per call unless many are queued."""
        with contextlib.suppress(BlockingIOError):
            while True:
                size = self._socket.recv_into(self._buffer)
                try:
                    frame = decode_frame(self._buffer[:size])
                except InvalidRecord as error:
                    self._unreadable += 1
                    _log.warning("meter frame unreadable bytes=%d error=%s", size, error.message)
                    continue
                self._dropped[frame.rank] = frame.dropped
                self._splitter.feed(frame)
                if frame.rank == 0:
                    for mark in frame.marks:
                        self._mark(mark)
        self._splitter.record(_STEPS_A_TURN if self._splitter.backlog < _MAX_BACKLOG else None)

    def is_settled(self, request_id: bytes) -> bool:
        """Return whether every step of a request has been measured and charged."""
        if not self._requests.is_settled(request_id, self._splitter.recorded) and self._splitter.backlog:
            self._splitter.record()
        return self._requests.is_settled(request_id, self._splitter.recorded)

    def end(self, request_id: bytes, *, is_aborted: bool) -> Account:
        """Return a request's account. Later steps of the request appear only in step records, marked as aborted."""
        return self._requests.end(request_id)

    @property
    def is_quiet(self) -> bool:
        """Return whether no request is live and no step is left to be recorded."""
        return not self._requests.has_live and self._splitter.is_quiet

    def take(self, *, idle: bool, facts: QueueFacts | None) -> list[StepRecord]:
        """Return the records since the last call. `idle`: the host knows of no runnable request.

        `facts` is `None` if the engine's queue is not known.
        """
        self._splitter.facts = facts
        if idle:
            self._splitter.record()
        if idle and self.is_quiet:
            used, total = (None, None) if facts is None else (facts.kv_blocks_used, facts.kv_blocks_total)
            self._book.write_idle_time(kv_blocks_used=used, kv_blocks_total=total)
        return self._book.take()

    def on_step(self, hear: Callable[[int, Sequence[StepRow]], None]) -> None:
        """Call `hear` for each record with its sequence number and the rows that its time was split among."""
        self._splitter.on_step = hear

    def facts(self) -> Facts:
        """Return counters and gauges. `meter_lost_steps` counts steps that no worker reported."""
        splitter = self._splitter
        return {
            "steps": splitter.steps,
            "busy_ns": splitter.busy_ns,
            "step_fit_version": splitter.fitter.model.version,
            "step_fit_drifting": splitter.fitter.drift.is_raised,
            "step_fit_error_p90": splitter.fitter.model.p90_error,
            "meter_lost_steps": splitter.lost.steps,
            "meter_unknown_rows": splitter.lost.rows,
            "meter_dropped_steps": sum(self._dropped.values()),
            "meter_unreadable_frames": self._unreadable,
            "meter_rank_skew_ns": splitter.rank_skew_ns,
        }

    def close(self) -> None:
        """Record what has arrived, and remove the socket."""
        if self._socket.fileno() >= 0:
            self.collect()
            self._splitter.record()
            self._socket.close()
            if self.is_quiet:
                self._book.close()
        self._splitter.close()
        self._path.unlink(missing_ok=True)
        if self._folder is not None:
            with contextlib.suppress(OSError):  # the folder has other files, which are not removed
                self._folder.rmdir()

    def _mark(self, mark: Mark) -> None:
        if mark.phase in _PHASES:
            self._book.lifecycle(_PHASES[mark.phase], mark.at_ns)
