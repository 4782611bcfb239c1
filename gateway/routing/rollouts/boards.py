"""Shared state of rollouts between gateways, in the control database or in a local file."""

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from algorithms.rollouts.rollout_tally import ArmTally, RolloutTotals
from contracts.recording.moments import utc_now
from contracts.serving.rollouts import RolloutSpec

_log = logging.getLogger(__name__)


class Shared(msgspec.Struct, frozen=True):
    """What the other gateways measured, and the cost of shadow copies today, including earlier processes and other
    gateways.
    """

    observed: list[RolloutTotals] = []
    incumbent_before: ArmTally | None = None  # reported by this gateway before its restart; sent once
    own_shadow_pico_usd: int = 0
    others_shadow_pico_usd: list[int] = []


class RolloutBoard(Protocol):
    """Blocking calls. A change names the term that was read, so that of several gateways only the first one changes
    it.
    """

    @property
    def can_step(self) -> bool:
        """Return whether this gateway may start the next step of a rollout."""

    def exchange(self, spec: RolloutSpec, observed: RolloutTotals, day: str, shadow_pico_usd: int) -> Shared:
        """Publish what this gateway measured and return what others did. Raise ControlUnavailable."""

    def stopped(self, spec: RolloutSpec) -> str:
        """Return why a rollout was stopped here before this process started; empty if it was not."""

    def roll_back(self, spec: RolloutSpec, reason: str) -> None:
        """Roll back to the incumbent and raise an alert. Raise ControlUnavailable."""

    def go_on(self, spec: RolloutSpec) -> None:
        """Start the rollout's next step, or promote the candidate after the last step. Raise ControlUnavailable."""

    def close(self) -> None:
        """Close connections."""


class FileBoard:
    """The state of rollouts for a gateway that runs from a YAML file: of this gateway only, without steps.

    A rollback survives restarts, until the rollout's entry in the configuration changes.
    """

    can_step = False

    def __init__(self, path: Path, now: Callable[[], datetime] = utc_now) -> None:
        self._path = path
        self._now = now
        self._told: dict[str, str] = {}  # the last reported day, by rollout

    def exchange(self, spec: RolloutSpec, observed: RolloutTotals, day: str, shadow_pico_usd: int) -> Shared:
        """Store what shadow copies cost today, and return what earlier processes stored."""
        kept = self._read()
        before = kept.shadow.get(spec.id, _Spent())
        own = before.pico_usd if before.day == day else 0
        # A new process does not know yet what was spent before it started.
        spent = shadow_pico_usd if self._told.get(spec.id) == day else max(own, shadow_pico_usd)
        if spec.rules.shadow is not None and spent != own:
            kept.shadow[spec.id] = _Spent(day, spent)
            self._write(kept)
        self._told[spec.id] = day
        return Shared(own_shadow_pico_usd=own)

    def stopped(self, spec: RolloutSpec) -> str:
        """Return why the rollout, as configured now, was rolled back."""
        found = self._read().rolled_back.get(spec.id, _RolledBack())
        return found.reason if found.entry == _entry(spec) else ""

    def roll_back(self, spec: RolloutSpec, reason: str) -> None:
        """Store the rollback, once."""
        kept, entry = self._read(), _entry(spec)
        if spec.id not in kept.rolled_back or kept.rolled_back[spec.id].entry != entry:
            kept.rolled_back[spec.id] = _RolledBack(entry, reason, self._now().isoformat())
            self._write(kept)

    def go_on(self, spec: RolloutSpec) -> None:
        """Do nothing: the file sets the share."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _read(self) -> "_Kept":
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return _Kept()
        except (OSError, msgspec.MsgspecError, UnicodeError):
            _log.warning(
                "the rollouts file cannot be read; no rollout counts as rolled back", extra={"path": str(self._path)}
            )
            return _Kept()

    def _write(self, kept: "_Kept") -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        half = self._path.with_suffix(".new")
        half.write_bytes(msgspec.json.encode(kept))
        half.replace(self._path)


class _RolledBack(msgspec.Struct, frozen=True):
    entry: str = ""
    reason: str = ""
    at: str = ""


class _Spent(msgspec.Struct, frozen=True):
    day: str = ""
    pico_usd: int = 0


class _Kept(msgspec.Struct):
    rolled_back: dict[str, _RolledBack] = {}
    shadow: dict[str, _Spent] = {}


def _entry(spec: RolloutSpec) -> str:
    """Return a text that identifies one configuration of a rollout."""
    return msgspec.json.encode([spec.route, spec.incumbent, spec.candidate, spec.rules]).decode()
