"""One connection to Redis that runs the script. It never sends anything twice by itself: whoever asks knows better."""

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

from backends.counters.address import CountersAddress
from backends.counters.script import batch_script
from contracts.errors import CountersUnavailable

_CONNECT_SECONDS: Final = 1.0


class CountersConnection:
    """A connection that is made at first use and made anew after a failure."""

    def __init__(self, address: CountersAddress, timeout_seconds: float) -> None:
        """Take the longest time that one answer may need."""
        self.address = address
        self._source, self._digest = batch_script()
        self._client: Redis = Redis.from_url(
            address.url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=timeout_seconds,
            socket_connect_timeout=_CONNECT_SECONDS,
            max_connections=1,
            decode_responses=False,
        )

    async def run_batch(self, keys: Sequence[str], payload: bytes) -> bytes:
        """Run the script. Raises CountersUnavailable where no answer came: the batch may have been done or not."""
        try:
            try:
                reply = await self._client.evalsha(self._digest, len(keys), *keys, payload)
            except NoScriptError:
                reply = await self._client.eval(self._source.decode(), len(keys), *keys, payload)
        except (AuthenticationError, NoPermissionError) as error:
            raise CountersUnavailable(
                f"Redis at {self.address.shown} refuses the user or password; check TOLLKEEPER_REDIS_URL"
            ) from error
        except ResponseError as error:
            raise CountersUnavailable(
                f"Redis at {self.address.shown} refuses the script: {_first_line(error)}"
            ) from error
        except (RedisError, OSError) as error:
            raise CountersUnavailable(f"Redis at {self.address.shown} does not answer") from error
        if not isinstance(reply, bytes):
            raise CountersUnavailable(f"Redis at {self.address.shown} gave an answer of another kind")
        return reply

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()


def _first_line(error: ResponseError) -> str:
    """Give what Redis says, shortened: it quotes key names of ours, and never a password."""
    return str(error).splitlines()[0][:160] if str(error) else type(error).__name__
