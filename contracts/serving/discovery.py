"""The settings of a target that represents all discovered endpoints."""

from dataclasses import replace
from typing import Final

from contracts.errors import ConfigurationError
from contracts.serving.configuration import TargetSpec

DISCOVER: Final = "discover"
SLOW_START_SECONDS: Final = "slow_start_seconds"
ADDRESS: Final = "{address}"
_DEFAULT_SECONDS: Final = 10.0
_MOST_SECONDS: Final = 3600.0


def discover_of(spec: TargetSpec) -> str:
    """Return where a target's endpoints are discovered; empty for a target with one endpoint."""
    where = spec.settings.get(DISCOVER)
    return where if isinstance(where, str) else ""


def slow_start_of(spec: TargetSpec) -> float:
    """Return the seconds in which the share of a joining endpoint grows to its full size."""
    seconds = spec.settings.get(SLOW_START_SECONDS, _DEFAULT_SECONDS)
    return float(seconds) if isinstance(seconds, int | float) else _DEFAULT_SECONDS


def without_discovery(spec: TargetSpec) -> TargetSpec:
    """Return a target with only the settings of its adapter."""
    kept = {name: value for name, value in spec.settings.items() if name not in (DISCOVER, SLOW_START_SECONDS)}
    return spec if len(kept) == len(spec.settings) else replace(spec, settings=kept)


def check_discovery(spec: TargetSpec) -> None:
    """Raise ConfigurationError if settings contradict each other, naming the target."""
    where, seconds = spec.settings.get(DISCOVER), spec.settings.get(SLOW_START_SECONDS)
    if where is None:
        if ADDRESS in spec.url:
            raise ConfigurationError(
                f"target {spec.id!r} has {ADDRESS} in its url and no settings.discover that says where endpoints are"
            )
        if seconds is not None:
            raise ConfigurationError(
                f"target {spec.id!r}: slow_start_seconds has no use without discover; leave it out"
            )
        return
    if not isinstance(where, str) or not where:
        raise ConfigurationError(f"target {spec.id!r}, discover: use a text such as dns:_http._tcp.vllm.example")
    if ADDRESS not in spec.url:
        raise ConfigurationError(
            f"target {spec.id!r} discovers endpoints; its url must have {ADDRESS} where host and port go, such as "
            f"http://{ADDRESS}/v1"
        )
    if seconds is not None and not (
        isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= _MOST_SECONDS
    ):
        raise ConfigurationError(f"target {spec.id!r}: slow_start_seconds is not within 0 to {_MOST_SECONDS:g}")
