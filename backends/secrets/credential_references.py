"""References to credentials: which variables and files may be referred to, and their values.

A user who can change a target can send its credential to any address. So references from the control plane's API or
database must satisfy `ReferenceRules` when they are written and whenever they are resolved. References in the
operator's own configuration file need not.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError

DEFAULT_VARIABLES: Final = "*_API_KEY,TOLLKEEPER_PROVIDER_*"
# The reference of the model at TOLLKEEPER_UPSTREAM_URL, which the control plane creates itself.
UPSTREAM_VARIABLE: Final = "TOLLKEEPER_UPSTREAM_KEY"
PROVIDER_KEYS: Final = "provider_keys"  # the only part of the data directory that references may name
VARIABLES_SETTING: Final = "TOLLKEEPER_CREDENTIAL_VARIABLES"
DIRECTORIES_SETTING: Final = "TOLLKEEPER_CREDENTIAL_DIRECTORIES"

_SYSTEM_SECRETS: Final = Path("/run/secrets")
# The last one contains a Kubernetes pod's token.
_NEVER: Final = tuple(Path(name) for name in ("/proc", "/sys", "/dev", "/run/secrets/kubernetes.io"))
_OWN_VARIABLES: Final = "TOLLKEEPER_"  # settings, including passwords and sealing keys
_OWN_PROVIDER_VARIABLES: Final = "TOLLKEEPER_PROVIDER_"
_TLS_FILES: Final = ("ca_file", "certificate", "key")
_MAX_BYTES: Final = 64 * 1024
_MAX_SHOWN: Final = 200


class ReferenceRules:
    """The variables and directories that references may name. Some are refused whatever the settings are."""

    def __init__(self, data: Path, variables: Sequence[str] = (), directories: Sequence[Path] = ()) -> None:
        self._variables = tuple(variables)
        self._provider_keys = _real(data / PROVIDER_KEYS)
        self._never = (_real(data), *(_real(path) for path in _NEVER))
        self._directories = tuple(_real(directory) for directory in directories)

    @classmethod
    def of(cls, data: Path, variables: str, directories: str) -> "ReferenceRules":
        """Return the rules of two settings: comma-separated patterns of variables, and directories.

        The default directories are `/run/secrets`, and `provider_keys` in the data directory. Raises ConfigurationError
        for a relative directory.
        """
        named = [Path(name) for name in _listed(directories)]
        for directory in named:
            if not directory.is_absolute():
                raise ConfigurationError(f"{DIRECTORIES_SETTING} names {str(directory)!r}; it must begin with a slash")
        return cls(data, _listed(variables), named or (_SYSTEM_SECRETS, data / PROVIDER_KEYS))

    def check(self, reference: str) -> None:
        """Raise ConfigurationError if a reference names a variable or file that the settings do not allow."""
        kind, _, place = reference.partition(":")
        if kind == "env":
            self.check_variable(place)
        elif kind == "file":
            self.check_file(place)

    def check_variable(self, name: str) -> None:
        """Raise ConfigurationError if a variable may not be named."""
        is_allowed = any(fnmatchcase(name, pattern) for pattern in self._variables)
        if self.is_own_variable(name) or not (is_allowed or name == UPSTREAM_VARIABLE):
            raise ConfigurationError(
                f"references may not name the environment variable {name[:_MAX_SHOWN]!r}; rename it to match a pattern "
                f"of {VARIABLES_SETTING} ({DEFAULT_VARIABLES} by default), add it to that setting, or store the key "
                "with `tollkeeper secrets put`"
            )

    def check_file(self, name: str) -> None:
        """Raise ConfigurationError if a file may not be named. Symbolic links are resolved first."""
        place = _real(Path(name)) if name and "\0" not in name else None
        if place is None or self.is_guarded(place) or not any(place.is_relative_to(one) for one in self._directories):
            raise ConfigurationError(
                f"references may not name the file {name[:_MAX_SHOWN]!r}; move it below a directory of "
                f"{DIRECTORIES_SETTING} (/run/secrets, and {PROVIDER_KEYS} in the data directory, by default), or "
                "store the key with `tollkeeper secrets put`"
            )

    def is_guarded(self, place: Path) -> bool:
        """Return whether a file is never allowed: in the data directory (except provider_keys) or a system
        directory.
        """
        place = _real(place)
        if place.is_relative_to(self._provider_keys):
            return False
        return any(place.is_relative_to(one) for one in self._never)

    def is_own_variable(self, name: str) -> bool:
        """Return whether a variable is one of Tollkeeper's own settings, which are never allowed."""
        is_for_providers = name.startswith(_OWN_PROVIDER_VARIABLES) or name == UPSTREAM_VARIABLE
        return name.startswith(_OWN_VARIABLES) and not is_for_providers

    def check_target(self, kind: str, key_ref: str, settings: Mapping[str, object]) -> None:
        """Raise ConfigurationError if a target has a reference that is not allowed.

        References of litellm targets are resolved by the provider host with a setting of its own
        (TOLLKEEPER_PROVIDERS_KEYS), so here they are only checked for what is never allowed.
        """
        for where, reference in _references(key_ref, settings):
            kind_of, _, place = reference.partition(":")
            try:
                if kind != "litellm":
                    self.check(reference)
                elif (kind_of == "env" and self.is_own_variable(place)) or (
                    kind_of == "file" and ("\0" in place or self.is_guarded(Path(place)))
                ):
                    raise ConfigurationError(f"references may not name {reference[:_MAX_SHOWN]!r}")
            except ConfigurationError as error:
                raise ConfigurationError(f"{where}: {error.message}", param=where) from error


def read_reference(reference: str, rules: ReferenceRules | None) -> str:
    """Return the credential in a variable or file. `rules` apply to references other than the operator's own.

    Raises ConfigurationError with the reference, never with the value.
    """
    if rules is not None:
        rules.check(reference)
    kind, _, place = reference.partition(":")
    if kind == "env" and place:
        value = os.environ.get(place, "")
        if not value:
            raise ConfigurationError(f"the environment variable {place} is not set; it should hold a credential")
        return value
    if kind == "file" and place:
        try:
            credential = (Path(place).read_text() if rules is None else _content(place)).strip()
        except OSError as error:
            raise ConfigurationError(f"credential file {place} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"credential file {place} does not contain text") from error
        if not credential:
            raise ConfigurationError(f"credential file {place} is empty")
        return credential
    raise ConfigurationError("a key_ref is 'env:NAME' or 'file:PATH', never the credential itself")


def _content(place: str) -> str:
    """Read a regular file of bounded size. Reading a FIFO or device could block for ever."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigurationError(f"credential file {place} is not a regular file")
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"credential file {place} has more than {_MAX_BYTES} bytes")
    return content.decode()


def _references(key_ref: str, settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield every reference of a target with the name of its field. Malformed settings are refused elsewhere."""
    yield "key_ref", key_ref
    for part in ("headers", "credentials"):
        given = settings.get(part)
        for name, value in given.items() if isinstance(given, Mapping) else ():
            if isinstance(value, str):
                yield f"settings.{part}.{name}"[:_MAX_SHOWN], value
    tls = settings.get("tls")
    for name, value in tls.items() if isinstance(tls, Mapping) else ():
        if name in _TLS_FILES and isinstance(value, str) and value:
            yield f"settings.tls.{name}", f"file:{value}"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
