"""Limits of stored files, and of batch processing."""

from dataclasses import dataclass

from contracts.objects.files import FileBounds


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Settings of the runner. `place` identifies the gateway and its data directory: a gateway that is started there
    again continues its batches.

    `concurrency`: the number of lines served at once. `lease_seconds`: how long a batch is leased without a renewal.
    `look_seconds`: the interval between searches for batches.
    """

    place: str
    concurrency: int
    lease_seconds: float = 30.0
    look_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings of batches. `is_shared`: other gateways may leave batches to this one, so it searches for them
    periodically.
    """

    files: FileBounds
    runner: RunnerSettings
    is_shared: bool
