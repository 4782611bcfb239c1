"""One connection to Redis that runs the counters' script. It never repeats a command: that is for the
caller to decide.
"""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from redis.exceptions import AuthenticationError, NoPermissionError, NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as SocketTimeout

from backends.counters.address import CountersAddress
from backends.counters.primary import Primary
from backends.processes.running_time import RunningTimeout
from contracts.errors import CountersForeign, CountersSilent, CountersUnavailable

_log = logging.getLogger(__name__)

# The script is concatenated from these files, in this order: each uses definitions of those before it.
_PARTS: Final = ("exact", "gateways", "sliding", "open", "places", "escrow", "batch")
_KEEPS_ALL: Final = "noeviction"
_MOST_PATIENCE: Final = 8  # times the first timeout: it doubles after each attempt without an answer
_CONFIRMED_SHARE: Final = 0.6  # of the timeout, to wait for replicas' confirmation


class CountersConnection:
    """A connection that is opened at its first use and again after a failure."""

    def __init__(self, address: CountersAddress, timeout_seconds: float, tag: str = "counters") -> None:
        """`timeout_seconds` is the time limit of an attempt; after unanswered attempts it is longer.

        Only the time in which this process runs is counted. All keys have `{tag}` in their names.
        """
        self.address = address
        self._source, self._digest = batch_script()
        self._timeout_seconds = self._patience_seconds = timeout_seconds
        self._turn = asyncio.Lock()
        self._primary = Primary(address, tag, _MOST_PATIENCE * timeout_seconds)
        self._has_seen_memory = False
        self._owner_key = f"tollkeeper:{{{tag}}}:installation"
        self._owned = 0  # `_primary.found` when the owner of the server's counters was last checked

    async def run_batch(self, keys: Sequence[str], payload: bytes) -> bytes:
        """Run the script. Raise CountersUnavailable if no answer arrived: the batch may or may not have been executed.

        Raise CountersForeign if the server's counters belong to another installation: the batch was not executed. Raise
        CountersSilent if the time limit passed. An answer that too few replicas confirm does not count: a failover
        could undo it. Batches are sent one after another.
        """
        async with self._turn:
            return await self._run_alone(keys, payload)

    async def _run_alone(self, keys: Sequence[str], payload: bytes) -> bytes:
        shown = self.address.shown
        try:
            async with RunningTimeout(self._patience_seconds):
                reply = await self._run(keys, payload)
        except CountersUnavailable:
            await self._primary.forget()
            raise
        except (AuthenticationError, NoPermissionError) as error:
            raise CountersUnavailable(
                f"Redis at {shown} refuses the user or password; check TOLLKEEPER_REDIS_URL, and for Sentinels "
                "TOLLKEEPER_REDIS_SENTINEL_PASSWORD"
            ) from error
        except ResponseError as error:
            raise CountersUnavailable(f"Redis at {shown} refuses the script: {_first_line(error)}") from error
        except (TimeoutError, SocketTimeout) as error:
            await self._primary.forget()
            most = _MOST_PATIENCE * self._timeout_seconds
            self._patience_seconds = min(2 * self._patience_seconds, most)
            raise CountersSilent(f"Redis at {shown} did not answer in time") from error
        except (RedisError, OSError) as error:
            await self._primary.forget()
            raise CountersUnavailable(f"Redis at {shown} does not answer") from error
        self._patience_seconds = self._timeout_seconds
        if not isinstance(reply, bytes):
            raise CountersUnavailable(f"Redis at {shown} gave an answer of another kind")
        return reply

    async def _require_own(self) -> None:
        """Store the owner of this server's counters if there is none. Raise CountersForeign if there is another."""
        ours = self.address.installation
        results = await self._primary.call([("SET", self._owner_key, ours, "NX"), ("GET", self._owner_key)])
        if any(isinstance(result, NoPermissionError) for result in results):
            self._owned = self._primary.found  # a Redis user may lack the permission to read it
            return
        for result in results:
            if isinstance(result, Exception):
                raise result
        owner = results[1].decode() if isinstance(results[1], bytes) else str(results[1])
        if owner != ours:
            raise CountersForeign(
                f"Redis at {self.address.shown} counts for another installation ({owner}; this one is {ours}). Correct "
                "TOLLKEEPER_REDIS_URL, or give each installation a server or a database of its own; if that "
                f"installation is gone, delete the key {self._owner_key}"
            )
        self._owned = self._primary.found

    async def _run(self, keys: Sequence[str], payload: bytes) -> object:
        if self.address.installation and (self._owned != self._primary.found or not self._primary.is_connected):
            await self._require_own()
        results = await self._call("EVALSHA", self._digest, keys, payload)
        if isinstance(results[0], NoScriptError):
            results = await self._call("EVAL", self._source.decode(), keys, payload)
        for result in results:
            if isinstance(result, Exception):
                raise result
        wanted = self.address.confirming_replicas
        if wanted and results[1] < wanted:
            raise CountersUnavailable(
                f"{results[1]} of {wanted} replicas of Redis at {self.address.shown} confirm; start the missing "
                "replicas, or lower TOLLKEEPER_REDIS_REPLICAS"
            )
        return results[0]

    async def _call(self, verb: str, script: str, keys: Sequence[str], payload: bytes) -> list[Any]:
        commands: list[tuple[Any, ...]] = [(verb, script, len(keys), *keys, payload)]
        if self.address.confirming_replicas:
            milliseconds = max(round(self._patience_seconds * 1000 * _CONFIRMED_SHARE), 1)
            commands.append(("WAIT", self.address.confirming_replicas, milliseconds))
        if self._has_seen_memory:
            return await self._primary.call(commands)
        *results, memory = await self._primary.call([*commands, ("INFO", "memory")])
        if isinstance(memory, dict):  # a Redis user may lack the permission to read it
            self._has_seen_memory = True
            self._warn_of_eviction(memory)
        return results

    def _warn_of_eviction(self, memory: Mapping[str, Any]) -> None:
        """Log that Redis may evict counters, if its settings allow it."""
        policy = memory.get("maxmemory_policy", _KEEPS_ALL)
        if memory.get("maxmemory") and policy != _KEEPS_ALL:
            _log.warning(
                "Redis may evict counters; an evicted counter starts at zero",
                extra={"url": self.address.shown, "policy": policy, "remedy": f"set maxmemory-policy {_KEEPS_ALL}"},
            )

    async def close(self) -> None:
        """Close the connection."""
        await self._primary.close()


@cache
def batch_script() -> tuple[bytes, str]:
    """Return the script's source, and its SHA-1 digest, by which Redis calls it once it is loaded."""
    folder = files("backends.counters")
    source = "\n".join(folder.joinpath(f"{part}.lua").read_text() for part in _PARTS).encode()
    return source, hashlib.sha1(source, usedforsecurity=False).hexdigest()


def _first_line(error: ResponseError) -> str:
    """Return Redis' message, shortened: it quotes our key names, and never a password."""
    return str(error).splitlines()[0][:160] if str(error) else type(error).__name__
