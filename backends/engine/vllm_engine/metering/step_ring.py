"""Builds and loads the C part of the worker's meter, `step_ring.c`, in the worker itself, as Triton does."""

import importlib.util
import logging
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from backends.engine.vllm_engine.metering.gpu_clock import GpuEvent, ReadRing

_log = logging.getLogger(__name__)

SOURCE: Final = Path(__file__).with_name("step_ring.c")
DRIVER: Final = "libcuda.so.1"
_BUILD_SECONDS: Final = 60.0
_SLOTS: Final = 256


class StepRing(ReadRing, Protocol):
    """Records steps that repeat the previous batch, with one GPU event at the end of each; implemented in
    step_ring.c.
    """

    def await_like(self, names: list[str], total: int, steps: int, nanoseconds: int, /) -> None:
        """Accept batches that continue the last one: same `names`, and `total` tokens computed before the next step.

        Accepts at most `steps` of them, within `nanoseconds`.
        """

    def stop(self) -> None:
        """Stop accepting steps."""

    def begin(self, batch: object, /) -> bool:
        """Start a step if it is as expected and return true; otherwise change nothing and stop accepting steps."""

    def end(self) -> bool:
        """End the step that was begun here; return false if there is none."""

    def cancel(self) -> bool:
        """Discard the step that was begun here; return false if there is none."""

    def take(self) -> int:
        """Return the number of steps that have ended since the last call. They can be read from then on."""


@dataclass(frozen=True, slots=True)
class StepRingModule:
    """The meter's functions in C: events, steady steps, sending."""

    make_event: Callable[[], GpuEvent]
    make_ring: Callable[[int, int], StepRing]  # number of slots, handle of a stream
    send: Callable[[int, bytes, str], None]  # a socket's file descriptor, a datagram, the path that it is sent to

    def ring(self, stream: int) -> StepRing:
        """Return a ring for the stream with this handle."""
        return self.make_ring(_SLOTS, stream)


def load_ring_module(driver: str = DRIVER) -> StepRingModule | None:
    """Compile and load the C part, which takes half a second; log a warning and return `None` if that fails."""
    try:
        module = _built()
        module.open_driver(driver)
    except (OSError, ImportError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or b""
        detail = output.decode(errors="replace").strip().partition("\n")[0] or str(error)
        _log.warning(
            "step metering uses its slow path, which costs 1 %% of a single stream of a small model: %s", detail
        )
        return None
    return StepRingModule(module.Event, module.Ring, module.send)


def _built() -> Any:
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang"))), None)
    if compiler is None:
        raise OSError("there is no C compiler (cc, gcc, clang, or CC)")
    # Loaded from a private folder that is deleted at once, so that no other process can replace the library.
    with tempfile.TemporaryDirectory(prefix="step-ring-") as folder:
        library = Path(folder) / "step_ring.so"
        include = sysconfig.get_paths()["include"]
        subprocess.run(
            [compiler, "-O2", "-w", "-fPIC", "-shared", f"-I{include}", str(SOURCE), "-o", str(library), "-ldl"],
            check=True,
            capture_output=True,
            timeout=_BUILD_SECONDS,
        )
        spec = importlib.util.spec_from_file_location("step_ring", library)
        if spec is None or spec.loader is None:
            raise ImportError(f"{library} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return cast(Any, module)
