"""Decides when an idle model sleeps and is unloaded. Pure; times are monotonic nanoseconds."""

from collections.abc import Iterable
from dataclasses import dataclass

from backends.engine.placement import Deed, Resident
from contracts.errors import ConfigurationError

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StayPolicy:
    """Idle seconds after which a model sleeps, and is unloaded; `None`: never. `warm`: models that always
    stay awake.
    """

    sleep_after_seconds: float | None = None
    unload_after_seconds: float | None = None
    warm: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        sleep, unload = self.sleep_after_seconds, self.unload_after_seconds
        if sleep is not None and unload is not None and unload <= sleep:
            raise ConfigurationError(
                f"idle models are unloaded after {unload:g} s and sleep after {sleep:g} s: sleep would never end; "
                "let them be unloaded later than they sleep"
            )

    def is_warm(self, model: str) -> bool:
        """Return whether a model always stays awake."""
        return model in self.warm


def due(residents: Iterable[Resident], policy: StayPolicy, now_ns: int) -> list[tuple[Deed, str]]:
    """Return the idle models whose time has passed, each with what to do: sleep or unload."""
    found: list[tuple[Deed, str]] = []
    for one in residents:
        if one.is_busy or one.is_warm or policy.is_warm(one.model):
            continue
        idle_ns = now_ns - one.last_used_ns
        if _is_over(idle_ns, policy.unload_after_seconds):
            found.append(("unload", one.model))
        elif _is_over(idle_ns, policy.sleep_after_seconds) and one.can_sleep and not one.is_asleep:
            found.append(("sleep", one.model))
    return found


def _is_over(idle_ns: int, seconds: float | None) -> bool:
    return seconds is not None and idle_ns >= seconds * _SECOND_NS
