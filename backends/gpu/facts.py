"""A GPU's sample as key-value pairs for an engine host's statistics."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from backends.gpu.base import DeviceIdentity, DeviceSample

Fact = float | int | str | bool | None

PREFIX: Final = "gpu."
_NOT_PLAIN: Final = frozenset({"uuid", "at_ns", "throttle_reasons", "processes"})


def device_facts(identity: DeviceIdentity, sample: DeviceSample) -> dict[str, Fact]:
    """Return `gpu.UUID.NAME` and its value for all that is known of a GPU; `None` is a value that could not be
    measured.
    """
    reasons = sample.throttle_reasons
    plain: dict[str, Fact] = {
        "name": identity.name,
        "index": identity.index,
        "vendor": identity.vendor,
        "parent": identity.parent,
        **{one.name: getattr(sample, one.name) for one in fields(sample) if one.name not in _NOT_PLAIN},
        "throttle_reasons": None if reasons is None else ",".join(reasons),
        "other_processes": sample.other_processes,
        "is_shared": sample.is_shared,
    }
    return {f"{PREFIX}{identity.uuid}.{name}": value for name, value in plain.items()}


def facts_by_device(facts: Mapping[str, Fact]) -> dict[str, dict[str, Fact]]:
    """Return each GPU's values by UUID and name, out of a host's statistics."""
    found: dict[str, dict[str, Fact]] = {}
    for key, value in facts.items():
        if not key.startswith(PREFIX):
            continue
        uuid, dot, name = key.removeprefix(PREFIX).partition(".")
        if dot and uuid and name:
            found.setdefault(uuid, {})[name] = value
    return found
