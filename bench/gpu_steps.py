"""Reads recorded GPU steps: files in the format of `bench/traces/gpu_steps`."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from algorithms.gpu_time.step_model import DECODE, PREFILL, StepRow, compose
from algorithms.gpu_time.step_samples import StepSample
from backends.engine.vllm_engine.metering.gpu_clock import DRAINED_NS

FOLDER: Final = Path(__file__).resolve().parent / "traces" / "gpu_steps"
STEPS: Final = FOLDER / "steps_h200_8b.jsonl.gz"
RUNS: Final = FOLDER / "runs.jsonl"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One measured step; `tags` names each row's tenant, in the rows' order."""

    sequence: int
    busy_ns: int
    gap_ns: int
    at_us: int
    rows: tuple[StepRow, ...]
    tags: tuple[str, ...]

    def sample(self) -> StepSample:
        """Return what a fit learns from it."""
        return StepSample(self.busy_ns, compose(self.rows, is_dry=self.is_dry), self.sequence)

    @property
    def is_dry(self) -> bool:
        """Return whether the GPU had run dry before it."""
        return self.gap_ns > DRAINED_NS


def read_runs(steps: Path = STEPS, runs: Path = RUNS) -> dict[str, list[RecordedStep]]:
    """Read both files: the steps of every run, by its name; runs of one name follow each other.

    A step belongs to the run whose window holds its time; one in no window is left out. Raises OSError on a file
    that cannot be read and ValueError, naming file and line, on one that is not in this format.
    """
    every = [_step(values, where) for values, where in _lines(steps)]
    found: defaultdict[str, list[RecordedStep]] = defaultdict(list)
    for run, where in _lines(runs):
        if not isinstance(run, Mapping) or not {"name", "t0", "t1"} <= run.keys():
            raise ValueError(f"{where}: a run needs name, t0 and t1")
        found[str(run["name"])] += [step for step in every if run["t0"] * 1e6 <= step.at_us <= run["t1"] * 1e6]
    return dict(found)


def write_steps(path: Path, steps: Iterable[RecordedStep]) -> None:
    """Write steps in this format, each row with its phase and shared tokens behind."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for step in steps:
            rows = [
                [tag, row.scheduled, row.context, row.phase, row.shared, row.logits]
                for tag, row in zip(step.tags, step.rows, strict=True)
            ]
            line = [step.sequence, step.busy_ns / 1000, step.gap_ns / 1000, step.at_us, rows]
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def write_windows(path: Path, windows: Iterable[tuple[str, int, int]]) -> None:
    """Write which run lay when: names, beginnings and ends in Unix nanoseconds."""
    lines = [json.dumps({"name": name, "t0": began / 1e9, "t1": ended / 1e9}) for name, began, ended in windows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def samples(steps: Iterable[RecordedStep]) -> list[StepSample]:
    """Return what a fit learns from these steps."""
    return [step.sample() for step in steps]


def _lines(path: Path) -> Iterator[tuple[Any, str]]:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            where = f"{path.name}:{number}"
            if line.strip():
                try:
                    yield json.loads(line), where
                except json.JSONDecodeError as error:
                    raise ValueError(f"{where}: not JSON: {error}") from error


def _opened(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _step(values: Any, where: str) -> RecordedStep:
    try:
        sequence, busy_us, gap_us, at_us, rows = values
        return RecordedStep(
            sequence=int(sequence),
            busy_ns=round(busy_us * 1000),
            gap_ns=round(gap_us * 1000),
            at_us=int(at_us),
            rows=tuple(_row(*map(int, numbers)) for _, *numbers in rows),
            tags=tuple(str(tag) for tag, *_ in rows),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: not a step: {error}") from error


def _row(scheduled: int, context: int, phase: int | None = None, shared: int = 0, logits: int = 1) -> StepRow:
    """Older recordings do not say which chunk ends its prompt, so each counts one row of logits."""
    if phase is None:
        phase = DECODE if scheduled == 1 and context else PREFILL
    return StepRow(scheduled, context, logits=logits, phase=phase, shared=shared)
