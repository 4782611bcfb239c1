"""APIs that a target speaks natively: their requests pass through, others are translated to chats."""

from typing import Any, Final, Literal, get_args

from contracts.errors import ConfigurationError
from contracts.serving.configuration import TargetSpec

NativeApi = Literal["chat", "messages", "responses", "gemini"]

_NAMES: Final = get_args(NativeApi)
_CHAT: Final[frozenset[str]] = frozenset(("chat",))
_KIND: Final = "openai_http"


def native_apis(spec: TargetSpec) -> frozenset[str]:
    """Return the APIs of `settings.apis`; only "chat" if there are none. Raise ConfigurationError.

    "chat" stands for all of OpenAI's endpoints except /responses.
    """
    given: Any = spec.settings.get("apis")
    if given is None or spec.kind != _KIND:
        return _CHAT
    if not isinstance(given, list | tuple | set | frozenset) or not given:
        raise ConfigurationError(f"target {spec.id!r}, apis: use a list of {', '.join(_NAMES)}")
    for name in given:
        if name not in _NAMES:
            raise ConfigurationError(f"target {spec.id!r}, apis: {str(name)[:60]!r} is none of {', '.join(_NAMES)}")
    return frozenset(given)


def drops_unknown(spec: TargetSpec) -> bool:
    """Return whether fields that no chat can carry are dropped for a target; by default it refuses them.

    Raise ConfigurationError if the setting has another value.
    """
    given = spec.settings.get("unknown_fields")
    if given not in (None, "refuse", "drop"):
        raise ConfigurationError(f"target {spec.id!r}, unknown_fields: {str(given)[:60]!r} is neither refuse nor drop")
    return given == "drop"


def supports_api(spec: TargetSpec, api: str) -> bool:
    """Return whether a target speaks an API natively. Called at each attempt: `native_apis` validates the settings."""
    given: Any = spec.settings.get("apis")
    return api in (given if spec.kind == _KIND and isinstance(given, list | tuple | set | frozenset) else _CHAT)
