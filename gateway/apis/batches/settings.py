"""Limits of stored files, and of batch processing."""

from dataclasses import dataclass

from contracts.objects.files import FileBounds


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """`place` names the gateway and its data directory: who starts there again takes over what it held.

    `concurrency` is how many lines are served at once. Times are seconds: `lease_seconds` for how long a batch is held
    without a sign of life, `look_seconds` between looks for something to do.
    """

    place: str
    concurrency: int
    lease_seconds: float = 30.0
    look_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """`is_shared`: other gateways may leave batches to this one, so that it looks for some unasked."""

    files: FileBounds
    runner: RunnerSettings
    is_shared: bool
