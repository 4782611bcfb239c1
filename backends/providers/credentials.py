"""Resolves references to credentials, only those that the operator allows."""

import os.path
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from backends.secrets.credential_references import ReferenceRules
from backends.secrets.sealed_references import is_stored, shown_reference, token_of
from contracts.errors import ConfigurationError, TargetMisconfigured

_REFUSED: Final = "credential_refused"
_SETTING: Final = "TOLLKEEPER_PROVIDERS_KEYS"
_MAX_SHOWN: Final = 200
_LEADING_ON: Final = ("os.environ/", "oidc/")  # prefixes of a variable, file or URL that LiteLLM would read


class Credentials:
    """Resolves references. Files are read at every call, so that a new key needs no restart.

    Keys stored in the control database arrive encrypted, and are decrypted only here.
    """

    def __init__(
        self,
        patterns: tuple[str, ...],
        environment: Mapping[str, str],
        open_sealed: Callable[[str], str] | None = None,
        rules: ReferenceRules | None = None,  # files and variables that are never allowed
    ) -> None:
        self._rules = rules
        self._patterns = patterns
        self._environment = environment
        self._open_sealed = open_sealed

    def resolve(self, reference: str) -> str:
        """Return the credential. Raises TargetMisconfigured with the reference, never with the value."""
        if is_stored(reference):
            return self._opened(reference)
        shown = repr(reference[:_MAX_SHOWN])
        kind, _, place = reference.partition(":")
        if kind == "file":
            place = os.path.normpath(place)  # `..` must not lead out of an allowed directory
        if kind not in ("env", "file") or not place:
            raise TargetMisconfigured("a key_ref is 'env:NAME' or 'file:PATH', never the credential itself")
        self._refuse_guarded(kind, place, shown)
        if not any(fnmatchcase(f"{kind}:{place}", pattern) for pattern in self._patterns):
            raise TargetMisconfigured(
                f"the provider host may not read {shown}; name it in {_SETTING} and start the host again",
                code=_REFUSED,
            )
        credential = self._environment.get(place, "") if kind == "env" else _content(Path(place), shown)
        if not credential:
            raise TargetMisconfigured(f"the provider host finds no credential in {shown}", code=_REFUSED)
        if not credential.isprintable() and not credential.startswith("{"):  # a JSON file has lines, a key has none
            raise TargetMisconfigured(f"the credential in {shown} contains a line end or another control character")
        return credential

    def credentials_of(self, references: Mapping[str, str]) -> dict[str, str]:
        """Return the credentials by LiteLLM's parameter name. Raises TargetMisconfigured.

        Also refuses stored keys that would make the library read a variable or file itself: a user who may store a key
        may not be allowed to read these.
        """
        found = {}
        for name, reference in references.items():
            value = found[name] = self.resolve(reference)
            if is_stored(reference) and leads_on(value, is_google=name == "vertex_credentials"):
                shown = repr(shown_reference(reference)[:_MAX_SHOWN])
                raise TargetMisconfigured(
                    f"the key in {shown} names a further variable, file or address, which only an env: or file: "
                    "reference may; store the credential itself",
                    code=_REFUSED,
                )
        return found

    def _refuse_guarded(self, kind: str, place: str, shown: str) -> None:
        rules = self._rules
        if rules is None:
            return
        if rules.is_own_variable(place) if kind == "env" else "\0" in place or rules.is_guarded(Path(place)):
            raise TargetMisconfigured(
                f"the provider host may not read {shown}: the installation's own settings and files, /proc, /sys and "
                "/dev are never credentials of a target",
                code=_REFUSED,
            )

    def _opened(self, reference: str) -> str:
        shown = repr(shown_reference(reference)[:_MAX_SHOWN])
        if self._open_sealed is None:
            raise TargetMisconfigured(
                f"the provider host has no sealing key to open {shown} with; share the control plane's secrets "
                "directory, or set TOLLKEEPER_SEALING_KEYS, and start the host again",
                code=_REFUSED,
            )
        try:
            return self._open_sealed(token_of(reference))
        except ConfigurationError as error:
            raise TargetMisconfigured(f"the provider host cannot open {shown}", code=_REFUSED) from error


def leads_on(value: str, *, is_google: bool = False) -> bool:
    """Return whether LiteLLM would interpret a value as the name of a variable, file or URL that contains the
    credential.

    Google's credentials (`is_google`) are a path, or JSON whose `credential_source` refers to a file or URL.
    """
    text = value.strip()
    if text.startswith(_LEADING_ON):
        return True
    if not is_google:
        return False
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return True
    return not isinstance(found, dict) or "credential_source" in found


def _content(path: Path, shown: str) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise TargetMisconfigured(f"the provider host cannot read {shown}: {error.strerror}", code=_REFUSED) from error
    except UnicodeDecodeError as error:
        raise TargetMisconfigured(f"the file of {shown} does not contain text", code=_REFUSED) from error
