"""Short messages that gateways leave for each other in Redis; each expires by itself."""

from collections.abc import Mapping, Sequence
from typing import Final

from redis.exceptions import RedisError

from backends.counters.address import CountersAddress
from backends.counters.primary import Command, Primary
from contracts.errors import CountersUnavailable

_SECONDS: Final = 1.0  # to connect, and for an answer: nobody waits for it


class MessageStore:
    """Messages by name; a later one replaces the earlier. Connects at first use, and again after a failure."""

    def __init__(self, address: CountersAddress, tag: str) -> None:
        self._address = address
        self._prefix = f"tollkeeper:{{{tag}}}:"
        self._primary = Primary(address, tag, _SECONDS)

    async def exchange(self, posted: Mapping[str, tuple[bytes, int]], wanted: Sequence[str]) -> dict[str, bytes]:
        """Write messages, each with its lifetime in milliseconds, and return the wanted ones that exist.

        Raises CountersUnavailable if Redis does not answer.
        """
        if not posted and not wanted:
            return {}
        commands: list[Command] = [
            ("SET", self._prefix + name, note, "PX", milliseconds) for name, (note, milliseconds) in posted.items()
        ]
        if wanted:
            commands.append(("MGET", *(self._prefix + name for name in wanted)))
        try:
            results = await self._primary.call(commands)
            for result in results:
                if isinstance(result, Exception):
                    raise result
        except (RedisError, OSError) as error:
            await self._primary.forget()
            raise CountersUnavailable(f"Redis at {self._address.shown} does not answer") from error
        notes = results[-1] if wanted else []
        return {name: note for name, note in zip(wanted, notes, strict=True) if isinstance(note, bytes)}

    async def close(self) -> None:
        """Close the connection."""
        await self._primary.close()
