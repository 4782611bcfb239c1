"""Fits beside the host: adopted when they are there, and no harm if they cannot be had."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_fitter import StepFitter
from algorithms.gpu_time.step_model import DECODE, StepModel, StepRow
from backends.engine.vllm_engine.metering.refits import Refits, other_process

TRUE = StepModel(token_ns=10_000.0, ridge_tokens=200.0, pair_ns=0.2, read_ns=8.0, logit_ns=2_000.0, fixed_ns=500_000.0)


def observed(steps=40):
    fitter = StepFitter()
    for place in range(steps):
        rows = [StepRow(1, 100 * place, phase=DECODE)] * (1 + place % 7)
        fitter.observe(round(TRUE.predict_ns(rows)), rows)
    return fitter


def test_a_fit_that_is_done_is_adopted():
    fitter = observed()
    pool = ThreadPoolExecutor(1)
    refits = Refits(fitter, lambda: pool)
    refits.look()
    pool.shutdown(wait=True)
    refits.look()
    assert fitter.model.samples == 40


def test_a_process_of_its_own_fits_as_this_one_does():
    fitter = observed()
    with other_process() as pool:
        found = pool.submit(fit, fitter.samples(), fitter.prior, number=1).result(30)
    assert found == fit(fitter.samples(), fitter.prior, number=1)


class Broken(Executor):
    """Breaks when asked, or when its answer is looked at."""

    def __init__(self, *, at_once: bool):
        self.at_once = at_once
        self.asked = 0

    def submit(self, *args, **kwargs):
        self.asked += 1
        if self.at_once:
            raise BrokenProcessPool("no more processes")
        future: Future[StepModel] = Future()
        future.set_exception(BrokenProcessPool("killed"))
        return future


@pytest.mark.parametrize("at_once", [True, False])
def test_without_fits_the_model_in_force_stays(at_once):
    fitter, pool = observed(), Broken(at_once=at_once)
    refits = Refits(fitter, lambda: pool)
    for _ in range(5):
        refits.look()
    assert (pool.asked, fitter.model.samples) == (1, 0)
    refits.close()
