"""One connection to Redis that runs the script. It never sends anything twice by itself: the one that asks knows
better.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    NoScriptError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as SocketTimeout

from backends.counters.address import CountersAddress
from backends.counters.script import batch_script
from contracts.errors import CountersSilent, CountersUnavailable

_CONNECT_SECONDS: Final = 1.0
_MOST_PATIENCE: Final = 8  # times the first: each try after one without an answer waits twice as long


class CountersConnection:
    """A connection that is made at first use and made again after a failure."""

    def __init__(self, address: CountersAddress, timeout_seconds: float) -> None:
        """`timeout_seconds` is how long a try waits for its answer; after tries without one it is longer."""
        self.address = address
        self._source, self._digest = batch_script()
        self._timeout_seconds = self._patience_seconds = timeout_seconds
        self._client: Redis = Redis.from_url(
            address.url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_MOST_PATIENCE * timeout_seconds,
            socket_connect_timeout=_CONNECT_SECONDS,
            max_connections=1,
            decode_responses=False,
        )

    async def run_batch(self, keys: Sequence[str], payload: bytes) -> bytes:
        """Run the script. Raise CountersUnavailable if no answer came: the batch may have been done or not.

        Raise CountersSilent if that is because the time was over.
        """
        try:
            async with asyncio.timeout(self._patience_seconds):
                reply = await self._run(keys, payload)
        except (AuthenticationError, NoPermissionError) as error:
            raise CountersUnavailable(
                f"Redis at {self.address.shown} refuses the user or password; check TOLLKEEPER_REDIS_URL"
            ) from error
        except ResponseError as error:
            raise CountersUnavailable(
                f"Redis at {self.address.shown} refuses the script: {_first_line(error)}"
            ) from error
        except (TimeoutError, SocketTimeout) as error:
            most = _MOST_PATIENCE * self._timeout_seconds
            self._patience_seconds = min(2 * self._patience_seconds, most)
            raise CountersSilent(f"Redis at {self.address.shown} did not answer in time") from error
        except (RedisError, OSError) as error:
            raise CountersUnavailable(f"Redis at {self.address.shown} does not answer") from error
        self._patience_seconds = self._timeout_seconds
        if not isinstance(reply, bytes):
            raise CountersUnavailable(f"Redis at {self.address.shown} gave an answer of another kind")
        return reply

    async def _run(self, keys: Sequence[str], payload: bytes) -> object:
        try:
            return await self._client.evalsha(self._digest, len(keys), *keys, payload)
        except NoScriptError:
            return await self._client.eval(self._source.decode(), len(keys), *keys, payload)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()


def _first_line(error: ResponseError) -> str:
    """Return what Redis says, shortened: it quotes key names of ours, and never a password."""
    return str(error).splitlines()[0][:160] if str(error) else type(error).__name__
