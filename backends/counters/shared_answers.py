"""Cached answers in Redis, shared by gateways: encrypted with a separate key for each tenant, bounded in bytes and
time.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from redis.exceptions import RedisError

from backends.counters.address import CountersAddress
from backends.counters.primary import Command, Primary
from backends.processes.running_time import RunningTimeout, any_done
from contracts.errors import CountersUnavailable

_log = logging.getLogger(__name__)

_TAG: Final = "answers"
ANSWER_SECONDS: Final = 0.1  # for Redis, before a model is asked instead
_AWAY_SECONDS: Final = 1.0  # for which no request is sent to Redis after a failure
_MOST_AT_ONCE: Final = 64  # commands
_MOST_WAITING_BYTES: Final = 32 << 20  # of answers still to be sent to Redis; further ones are not shared
_NONCE_BYTES: Final = 12
_TTL_BYTES: Final = 8
_PLACE_BYTES: Final = 12
_REMEMBERED_TENANTS: Final = 4096
_MS: Final = 1_000_000  # nanoseconds


class SharedCounts(msgspec.Struct):
    """Counts of requested and sent answers, by result."""

    hits: int = 0
    misses: int = 0
    unreadable: int = 0  # encrypted with another secret, or changed in Redis
    failures: int = 0  # requests to Redis without an answer; none is sent, or counted, during an outage
    sent: int = 0
    dropped: int = 0  # not sent, as Redis is unavailable or slow


@dataclass(frozen=True, slots=True)
class SharedAnswer:
    """A packed answer, its age, and its lifetime from its creation on (nanoseconds)."""

    packed: bytes
    age_ns: int
    ttl_ns: int


@dataclass(frozen=True, slots=True)
class _Tenant:
    prefix: str
    cipher: AESGCM


@dataclass(slots=True)
class _Errand:
    commands: list[Command]
    size_bytes: int
    results: "asyncio.Future[list[Any]] | None"  # `None`: no caller waits


class SharedAnswers:
    """Answers by tenant and key in one Redis. If Redis is unavailable or slow, that is a miss and never an error.

    Only gateways with the same secret can decrypt an answer, under its own tenant and key.
    """

    def __init__(
        self,
        address: CountersAddress,
        secret: bytes,
        tenant_max_bytes: int,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = SharedCounts()
        self._answer_seconds = answer_seconds
        self._primary = Primary(address, _TAG, answer_seconds)
        self._secret = secret
        self._tenant_max_bytes = tenant_max_bytes
        self._monotonic = monotonic
        self._script = files("backends.counters").joinpath("answers.lua").read_text()
        self._tenant = lru_cache(maxsize=_REMEMBERED_TENANTS)(self._derived)
        self._waiting: deque[_Errand] = deque()
        self._waiting_bytes = 0
        self._pump: asyncio.Task[None] | None = None
        self._away_until = -1.0
        self._is_reported = False  # whether the outage was logged

    @property
    def is_away(self) -> bool:
        """Return whether requests to Redis are suspended after a failure."""
        return self._monotonic() < self._away_until

    async def get(self, tenant: str, key: bytes) -> SharedAnswer | None:
        """Return a tenant's answer; `None` if there is none, or Redis does not answer in time."""
        if self.is_away:
            return None
        own = self._tenant(tenant)
        name = f"{own.prefix}a:{key.hex()}"
        asked = asyncio.get_running_loop().create_future()
        self._send(_Errand([("GET", name), ("PTTL", name)], 0, asked))
        if not await any_done((asked,), self._answer_seconds):
            asked.cancel()
            self._note_failure("it does not answer in time")
            return None
        results = asked.result()
        if not results or isinstance(results[0], RedisError):
            return None
        found, left_ms = results
        if not isinstance(found, bytes) or not isinstance(left_ms, int) or left_ms <= 0:
            self.counts.misses += 1
            return None
        return self._opened(own, key, found, left_ms)

    def put(self, tenant: str, key: bytes, packed: bytes, ttl_ns: int) -> None:
        """Send an answer to Redis in the background, replacing the key's previous one."""
        if self.is_away or self._waiting_bytes + len(packed) > _MOST_WAITING_BYTES:
            self.counts.dropped += 1
            return
        own, ttl_ms = self._tenant(tenant), max(ttl_ns // _MS, 1)
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + own.cipher.encrypt(nonce, ttl_ms.to_bytes(_TTL_BYTES, "big") + packed, key)
        answers, name = f"{own.prefix}a:", key.hex()
        keys = (f"{own.prefix}ends", f"{own.prefix}sizes", answers + name)
        command = ("EVAL", self._script, len(keys), *keys, answers, name, sealed, ttl_ms, self._tenant_max_bytes)
        self._waiting_bytes += len(packed)
        self._send(_Errand([command], len(packed), None))
        self.counts.sent += 1

    def state(self) -> dict[str, int]:
        """Return the counts that `GET /ready` shows."""
        return {f"shared_{name}": getattr(self.counts, name) for name in SharedCounts.__struct_fields__}

    async def close(self) -> None:
        """Send waiting answers, if Redis accepts them, and close the connection."""
        if self._pump is not None:
            await self._pump
        await self._primary.close()

    def _send(self, errand: _Errand) -> None:
        self._waiting.append(errand)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._carry(), name="shared answers")

    async def _carry(self) -> None:
        """Send waiting commands, all of them in one round trip."""
        while self._waiting:
            errands: list[_Errand] = []
            while self._waiting and len(errands) < _MOST_AT_ONCE:
                errand = self._waiting.popleft()
                self._waiting_bytes -= errand.size_bytes
                if errand.results is None or not errand.results.done():
                    errands.append(errand)
            if errands:
                self._deliver(errands, await self._ask([each for errand in errands for each in errand.commands]))

    async def _ask(self, commands: list[Command]) -> list[Any]:
        """Return the results; empty if Redis does not answer."""
        failure = ""
        try:
            async with RunningTimeout(self._answer_seconds + _AWAY_SECONDS):
                results = await self._primary.call(commands)
            failure = next((type(one).__name__ for one in results if isinstance(one, RedisError)), "")
        except CountersUnavailable as error:
            results, failure = [], error.message
        except (RedisError, OSError) as error:
            results, failure = [], type(error).__name__
        if failure:
            self._note_failure(failure)
            await self._primary.forget()
        elif self._is_reported and not self.is_away:
            self._is_reported = False
            _log.info("answers_shared_again")
        return results

    def _deliver(self, errands: list[_Errand], results: list[Any]) -> None:
        at = 0
        for errand in errands:
            own = results[at : at + len(errand.commands)]
            at += len(errand.commands)
            if errand.results is not None and not errand.results.done():
                errand.results.set_result(own)

    def _opened(self, own: _Tenant, key: bytes, sealed: bytes, left_ms: int) -> SharedAnswer | None:
        try:
            opened = own.cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], key)
        except (InvalidTag, ValueError):
            self.counts.unreadable += 1
            return None
        self.counts.hits += 1
        ttl_ms = int.from_bytes(opened[:_TTL_BYTES], "big")
        return SharedAnswer(opened[_TTL_BYTES:], max(ttl_ms - left_ms, 0) * _MS, ttl_ms * _MS)

    def _note_failure(self, reason: str) -> None:
        if not self._is_reported:  # the log summarises outages that follow each other within a minute
            self._is_reported = True
            _log.warning("answers_not_shared", extra={"reason": reason})
        self.counts.failures += 1
        self._away_until = self._monotonic() + _AWAY_SECONDS

    def _derived(self, tenant: str) -> _Tenant:
        """Return a tenant's key prefix, which does not name it, and its encryption key."""
        place = hmac.digest(self._secret, b"place of answers\0" + tenant.encode(), hashlib.sha256)
        key = hmac.digest(self._secret, b"key of answers\0" + tenant.encode(), hashlib.sha256)
        return _Tenant(f"tollkeeper:{{{_TAG}}}:{place[:_PLACE_BYTES].hex()}:", AESGCM(key))
