"""Short notes that gateways leave for each other in Redis; each goes away by itself."""

from collections.abc import Mapping, Sequence
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from backends.counters.address import CountersAddress
from contracts.errors import CountersUnavailable

_SECONDS: Final = 1.0  # to connect, and for an answer: nobody waits for it


class NoticeBoard:
    """Notes by name, the last one written holding. Connects at first use, and again after a failure."""

    def __init__(self, address: CountersAddress, prefix: str) -> None:
        self._address = address
        self._prefix = prefix
        self._client: Redis = Redis.from_url(
            address.url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
            max_connections=1,
            decode_responses=False,
        )

    async def exchange(self, posted: Mapping[str, tuple[bytes, int]], wanted: Sequence[str]) -> dict[str, bytes]:
        """Leave notes, each for the given number of milliseconds, and return those of the wanted names that there are.

        Raises CountersUnavailable if Redis does not answer.
        """
        if not posted and not wanted:
            return {}
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for name, (note, milliseconds) in posted.items():
                    pipeline.set(self._prefix + name, note, px=milliseconds)
                if wanted:
                    pipeline.mget([self._prefix + name for name in wanted])
                found = await pipeline.execute()
        except (RedisError, OSError) as error:
            raise CountersUnavailable(f"Redis at {self._address.shown} does not answer") from error
        notes = found[-1] if wanted else []
        return {name: note for name, note in zip(wanted, notes, strict=True) if isinstance(note, bytes)}

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()
