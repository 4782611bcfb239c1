"""What the attribution tests share: an engine with known coefficients, random steps, and strategies for both."""

import random
from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st

from algorithms.gpu_time.step_model import DECODE, StepModel, StepRow, compose
from algorithms.gpu_time.step_samples import StepSample

Step = tuple[int, tuple[StepRow, ...]]  # busy ns and what was in it

# About a model of 8 billion parameters on a large GPU.
ENGINE = StepModel(
    token_ns=22_000.0, ridge_tokens=180.0, pair_ns=0.9, read_ns=35.0, logit_ns=7_000.0, fixed_ns=700_000.0
)
# About a model of 5 million parameters on two CPU cores: hardly a ridge, and most of a step is overhead.
SMALL_ENGINE = StepModel(
    token_ns=100_000.0, ridge_tokens=9.0, pair_ns=130.0, read_ns=800.0, logit_ns=60_000.0, fixed_ns=1_500_000.0
)
STALL_NS = 180_000_000

# Laws are about results; a busy machine may take its time.
patient = settings(deadline=None)


def steps_of(engine: StepModel, count: int, *, seed: int = 0, noise: float = 0.0, stalls: float = 0.0) -> list[Step]:
    """Create steps of a mixed load: the time `engine` predicts, log-normal noise, and a share of 180 ms stalls."""
    source = random.Random(seed)
    steps = []
    for _ in range(count):
        rows = random_rows(source)
        busy_ns = engine.predict_ns(rows) * source.lognormvariate(0.0, noise)
        steps.append((round(busy_ns) + (STALL_NS if source.random() < stalls else 0), rows))
    return steps


def random_rows(source: random.Random) -> tuple[StepRow, ...]:
    """Create decodes, prefill chunks, or both."""
    kind = source.choice(("decode", "decode", "mixed", "prefill"))
    rows: list[StepRow] = []
    if kind != "prefill":
        rows += decodes(source, source.choice((1, 4, 16, 64, 256)))
    if kind != "decode":
        rows += [StepRow(source.choice((16, 128, 512, 2048)), source.randrange(6000)) for _ in range(2)]
    return tuple(rows)


def decodes(source: random.Random, count: int) -> list[StepRow]:
    return [StepRow(1, source.randrange(1, 8000), phase=DECODE) for _ in range(count)]


def as_samples(steps: Sequence[Step]) -> list[StepSample]:
    return [StepSample(busy_ns, compose(rows), number) for number, (busy_ns, rows) in enumerate(steps)]


def largest_difference(model: StepModel, true: StepModel, steps: Sequence[Step]) -> float:
    """Return the largest relative difference of two models' predictions of these steps."""
    return max(abs(model.predict_ns(rows) / true.predict_ns(rows) - 1) for _, rows in steps)


@st.composite
def models(draw: st.DrawFn) -> StepModel:
    """Draw any coefficients an engine may have, zeros included."""
    pair_ns = draw(st.just(0.0) | st.floats(0, 100))
    return StepModel(
        token_ns=draw(st.just(0.0) | st.floats(0, 1e6)),
        ridge_tokens=draw(st.floats(0, 4096)),
        pair_ns=pair_ns,
        read_ns=pair_ns + draw(st.just(0.0) | st.floats(0, 5000)),
        logit_ns=draw(st.just(0.0) | st.floats(0, 1e6)),
        fixed_ns=draw(st.just(0.0) | st.floats(0, 1e7)),
        ridge_softness=draw(st.just(0.0) | st.floats(0, 1)),
        launch_ns=draw(st.just(0.0) | st.floats(0, 1e7)),
        confidence=draw(st.floats(0, 1)),
    )


def step_rows(*, min_scheduled: int = 0) -> st.SearchStrategy[StepRow]:
    """Draw a row: mostly decodes, some chunks, some with nothing scheduled where that is allowed."""
    return st.builds(
        StepRow,
        scheduled=st.just(1) | st.integers(min_scheduled, 4096),
        context=st.integers(0, 130_000),
        logits=st.integers(0, 1),
    )


def batches(*, min_scheduled: int = 0, min_size: int = 0) -> st.SearchStrategy[list[StepRow]]:
    return st.lists(step_rows(min_scheduled=min_scheduled), min_size=min_size, max_size=24)


busy_times = st.integers(0, 10**12)
