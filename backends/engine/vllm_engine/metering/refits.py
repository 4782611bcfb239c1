"""Fits the step model in a process of its own: a fit takes 0.1 s of a core, for which no stream must wait."""

import logging
import multiprocessing
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor

from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_fitter import StepFitter
from algorithms.gpu_time.step_model import StepModel
from backends.engine.vllm_engine.metering.parent_death import die_with_parent

_log = logging.getLogger(__name__)


def other_process() -> Executor:
    """Return an executor with one process, which starts at the first fit."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=die_with_parent)


class Refits:
    """Refits one fitter's step model when it is due. If fits fail, the current model stays in use, and drift is
    reported.
    """

    def __init__(self, fitter: StepFitter, make: Callable[[], Executor]) -> None:
        self._fitter = fitter
        self._make = make
        self._executor: Executor | None = None
        self._running: Future[StepModel] | None = None
        self._is_broken = False

    def look(self) -> None:
        """Adopt a finished fit, or start one that is due."""
        try:
            if self._running is not None:
                if self._running.done():
                    done, self._running = self._running, None
                    self._fitter.adopt(done.result())
            elif self._fitter.is_due and not self._is_broken:
                self._begin()
        except (BrokenExecutor, OSError) as error:
            self._is_broken = True
            _log.warning("fitting of the step model stopped error=%s", type(error).__name__)

    def close(self) -> None:
        """Stop, and cancel a fit in progress."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        if self._executor is None:
            self._executor = self._make()
        fitter = self._fitter
        self._running = self._executor.submit(fit, fitter.samples(), fitter.prior, number=fitter.next_number)
