"""Stores the last snapshot of the control database as a signed file, with which a gateway can start during an outage.

Only a process with the installation's secret can create one. A file of another release, or a changed one, is ignored.
"""

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from backends.secrets.private_files import write_private
from contracts.control import SCHEMA_HEAD
from contracts.pricing.prices import AnyCard, PriceBook, PriceCard, StandardCostCard
from contracts.serving.configuration import Snapshot
from contracts.serving.sampling import SamplingPolicy, SamplingValues

_log = logging.getLogger(__name__)

_MAC_BYTES: Final = 32
_FORM: Final = f"2/{SCHEMA_HEAD}"
_LEAST_BETWEEN_SECONDS: Final = 5.0  # between two writes
_SEEN_SECONDS: Final = 20.0


class _Cards(msgspec.Struct):
    priced: list[PriceCard]
    standard: list[StandardCostCard]


class _Seen(msgspec.Struct):
    digest: bytes
    at_unix: float


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A stored snapshot, and the seconds since the database last confirmed it."""

    snapshot: Snapshot
    age_seconds: float


class SnapshotKeeper:
    """Stores the last snapshot in two files: the snapshot, and the time when the database last confirmed it.

    If the process ends between the two writes, the snapshot is newer than that time.
    """

    def __init__(
        self,
        folder: Path,
        secret: bytes,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder` is the gateway's own; `secret` is the installation's, for the signature."""
        self._folder = folder
        self._file, self._seen_file = folder / "configuration", folder / "seen"
        self._key = hmac.digest(secret, b"kept snapshot", hashlib.sha256)
        self._wall, self._monotonic = wall, monotonic
        self._waiting: Snapshot | None = None
        self._digest = b""
        self._kept_at = self._seen_at = float("-inf")
        self._has_failed = False

    def keep(self, snapshot: Snapshot) -> None:
        """Accept a newer snapshot, which the next `seen` writes."""
        self._waiting = snapshot

    def seen(self) -> None:
        """Record that the database answers, and write a pending snapshot. Never raises, even if the disk is full."""
        now = self._monotonic()
        try:
            if self._waiting is not None and now - self._kept_at >= _LEAST_BETWEEN_SECONDS:
                packed = msgspec.msgpack.encode((_FORM, self._wall(), self._waiting), enc_hook=_plain)
                self._write(self._file, packed)
                self._digest = hashlib.sha256(packed).digest()
                self._waiting, self._kept_at, self._seen_at = None, now, float("-inf")
            if self._digest and now - self._seen_at >= _SEEN_SECONDS:
                self._write(self._seen_file, msgspec.msgpack.encode(_Seen(self._digest, self._wall())))
                self._seen_at = now
        except OSError as error:
            self._kept_at = self._seen_at = now
            if not self._has_failed:
                _log.warning(
                    "snapshot cannot be stored on disk", extra={"file": self._file.name, "reason": error.strerror}
                )
            self._has_failed = True
        else:
            self._has_failed = False

    def read(self) -> KeptSnapshot | None:
        """Return the stored snapshot; `None` if there is none that is complete, signed and of this release."""
        packed, told = self._read(self._file), self._read(self._seen_file)
        if packed is None:
            return None
        try:
            form, kept_at, raw = msgspec.msgpack.decode(packed, type=tuple[str, float, msgspec.Raw])
            if form != _FORM:
                _log.warning("stored snapshot belongs to another release")
                return None
            seen = _Seen(b"", kept_at) if told is None else msgspec.msgpack.decode(told, type=_Seen)
            if seen.digest != hashlib.sha256(packed).digest():
                if kept_at < seen.at_unix:
                    _log.warning("stored snapshot is older than its recorded revision")
                    return None
                seen.at_unix = kept_at
            snapshot = msgspec.msgpack.decode(raw, type=Snapshot, dec_hook=_made)
        except (msgspec.MsgspecError, ValueError) as error:
            _log.error("stored snapshot cannot be read", extra={"reason": type(error).__name__})
            return None
        return KeptSnapshot(snapshot, max(self._wall() - seen.at_unix, 0.0))

    def _write(self, file: Path, packed: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, hmac.digest(self._key, packed, hashlib.sha256) + packed)

    def _read(self, file: Path) -> bytes | None:
        try:
            content = file.read_bytes()
        except OSError:
            return None
        mac, packed = content[:_MAC_BYTES], content[_MAC_BYTES:]
        if not hmac.compare_digest(mac, hmac.digest(self._key, packed, hashlib.sha256)):
            _log.error("stored snapshot is not signed with this installation's secret", extra={"file": file.name})
            return None
        return packed


def _plain(value: Any) -> object:
    if isinstance(value, PriceBook):
        return _Cards(
            [card for card in value.cards if isinstance(card, PriceCard)],
            [card for card in value.cards if isinstance(card, StandardCostCard)],
        )
    if isinstance(value, SamplingPolicy):
        return {"defaults": value.defaults, "pinned": value.pinned}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not kept")


def _made(kind: type, value: Any) -> object:
    if kind is object:  # a target's settings: any JSON
        return value
    if kind is PriceBook:
        cards = msgspec.convert(value, _Cards)
        every: list[AnyCard] = [*cards.priced, *cards.standard]
        return PriceBook(every)
    if kind is SamplingPolicy:
        return SamplingPolicy(*(msgspec.convert(value[name], SamplingValues) for name in ("defaults", "pinned")))
    raise TypeError(f"{kind.__name__} is not kept")
