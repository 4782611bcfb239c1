"""Parses a stage's settings from plain data into a struct; errors name the field."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from contracts.errors import ConfigurationError

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


def read_settings(given: Mapping[str, object], shape: type[SettingsT]) -> SettingsT:
    """Return the settings as an instance of `shape`. Raises ConfigurationError."""
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"settings: {error}") from error
