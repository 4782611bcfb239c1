"""Reading a stage's settings: plain data becomes a struct, and what is wrong a sentence that names the field."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from contracts.errors import ConfigurationError

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


def read_settings(given: Mapping[str, object], shape: type[SettingsT]) -> SettingsT:
    """Build settings. Raises ConfigurationError."""
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"settings: {error}") from error
