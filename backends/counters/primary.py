"""The Redis server with the counters: found in a cluster or through Sentinel, and found again after a failover.

All keys of one subject share a hash tag, hence one slot and one server. The library's own cluster client is not used:
it repeats unanswered commands, and it may send WAIT over another connection than the write to confirm.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from backends.counters.address import CountersAddress, Host
from backends.counters.cluster_view import ClusterView, parse_view
from backends.processes.running_time import RunningTimeout
from contracts.errors import CountersUnavailable

CONNECT_SECONDS: Final = 1.0
_FIND_SECONDS: Final = 0.2  # for the answers of nodes or Sentinels
_NOT_THE_PRIMARY: Final = (MovedError, ClusterDownError, ReadOnlyError, TryAgainError)
_NOT_A_CLUSTER: Final = "cluster support disabled"

Command = tuple[Any, ...]


class Primary:
    """The server with the keys of one hash tag. Connects at its first use, and again after a failure."""

    def __init__(self, address: CountersAddress, tag: str, answer_seconds: float) -> None:
        """`tag` is the hash tag, such as `counters` for keys with `{counters}`; `answer_seconds` the time limit of an
        answer.

        That limit, and another second for connecting, count only while this process runs.
        """
        self._address = address
        self._slot = key_slot(tag.encode())
        self._answer_seconds = answer_seconds
        self._client: Redis | None = None
        self._answering: Redis | None = None  # the client that has answered; another one still has to connect
        self._at: Host | None = None
        self._retired: list[Redis] = []  # to be closed
        self._asking: dict[Host, Redis] = {}  # nodes to which a slot is being moved
        self._view = ClusterView((), frozenset())  # of the cluster, as last accepted
        self.found = 0  # how often the server was looked for

    @property
    def at(self) -> Host | None:
        """Return the server's address, as last found; `None` if unknown."""
        return self._at

    @property
    def is_connected(self) -> bool:
        """Return whether the next call goes to the same server as the last one."""
        return self._client is not None

    async def call(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands over one connection, each of them once, and return their results, including errors.

        Raises the library's error if no answer arrived, and CountersUnavailable if the server is unknown. Follows MOVED
        and ASK: those commands were not executed at the first server.
        """
        results = await self._call(await self._connected(), commands)
        first = results[0]
        if isinstance(first, MovedError):
            await self._move_to(self._named(first))
            results = await self._call(await self._connected(), commands)
        elif isinstance(first, AskError):
            results = await self._ask(self._named(first), commands)
        if isinstance(results[0], _NOT_THE_PRIMARY) or _is_refusing_writes(results[0]):
            await self.forget()
        return results

    async def forget(self) -> None:
        """Search for the server again at the next call: it did not answer, or is not the primary any more."""
        if self._client is not None:
            self._retired.append(self._client)
            self._client = self._at = self._answering = None
        await self._close_retired()

    async def close(self) -> None:
        """Close all connections."""
        self._retired.extend(self._asking.values())
        self._asking.clear()
        await self.forget()

    async def _close_retired(self) -> None:
        while self._retired:
            client = self._retired[-1]
            with contextlib.suppress(RedisError, OSError):
                async with RunningTimeout(CONNECT_SECONDS):
                    await client.aclose()
            if client in self._retired:  # still listed if this was cancelled while it closed
                self._retired.remove(client)

    async def _call(self, client: Redis, commands: Sequence[Command]) -> list[Any]:
        seconds = self._answer_seconds if client is self._answering else CONNECT_SECONDS + self._answer_seconds
        async with RunningTimeout(seconds), client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            results = list(await pipeline.execute(raise_on_error=False))
        self._answering = client
        return results

    async def _ask(self, host: Host, commands: Sequence[Command]) -> list[Any]:
        client = self._asking.get(host)
        if client is None:
            client = self._asking[host] = self._made(host)
        asked = [command for each in commands for command in (("ASKING",), each)]
        return (await self._call(client, asked))[1::2]

    async def _connected(self) -> Redis:
        if self._client is None:
            host = await self._find()
            if self._client is None:
                self._client, self._at = self._made(host), host
        return self._client

    async def _move_to(self, host: Host) -> None:
        await self.forget()
        self._client, self._at = self._made(host), host

    def _named(self, error: AskError) -> Host:
        """Return the host in a redirection; if it is empty, the host that was asked."""
        return error.host or (self._at[0] if self._at else ""), error.port

    async def _find(self) -> Host | None:
        """Return the primary's host; `None` for a socket. Raises CountersUnavailable."""
        self.found += 1
        kind = self._address.kind
        if kind == "sentinel":
            return await self._find_with_sentinels()
        if kind == "cluster" or self._view.nodes:
            return await self._find_in_cluster()
        return self._address.hosts[0] if self._address.hosts else None

    async def _find_in_cluster(self) -> Host:
        hosts = dict.fromkeys([*self._address.hosts, *(node.host for node in self._view.nodes)])
        answers = await self._ask_all(hosts, ("CLUSTER", "NODES"), is_sentinel=False)
        views = [parse_view(text, host) for host, text in answers]
        shown = self._address.shown
        if not views:
            raise CountersUnavailable(f"no node of the Redis Cluster at {shown} answers")
        known = self._view.ids or max(views, key=lambda view: len(view.nodes)).ids
        related = [view for view in views if view.ids & known]
        if len(related) < len(views):
            foreign = ", ".join(
                f"{host}:{port}"
                for (host, port), view in zip(_hosts(answers), views, strict=True)
                if view not in related
            )
            if not self._view.ids:
                raise CountersUnavailable(
                    f"the nodes at {shown} belong to more than one Redis Cluster; correct TOLLKEEPER_REDIS_URL "
                    f"or take out {foreign}"
                )
        owners = [owner for view in related if (owner := view.owner(self._slot)) is not None]
        if not owners:
            raise CountersUnavailable(f"no node of the Redis Cluster at {shown} serves the counters' slot {self._slot}")
        self._view = max(related, key=lambda view: (view.epoch, len(view.nodes)))
        return max(owners, key=lambda owner: owner.epoch).host

    async def _find_with_sentinels(self) -> Host:
        address = self._address
        answers = await self._ask_all(address.hosts, ("SENTINEL MASTER", address.primary_name), is_sentinel=True)
        named = [(int(facts["config-epoch"]), facts["ip"], int(facts["port"])) for _, facts in answers if "ip" in facts]
        if not named:
            raise CountersUnavailable(
                f"no Sentinel at {address.shown} answers with the primary {address.primary_name!r}"
            )
        _, host, port = max(named)
        return host, port

    async def _ask_all(self, hosts: Iterable[Host], command: Command, *, is_sentinel: bool) -> list[tuple[Host, Any]]:
        """Return the answers that arrived in time. Raises AuthenticationError if one refuses the password."""

        async def ask(host: Host) -> tuple[Host, Any]:
            client = self._made(host, is_sentinel=is_sentinel)
            self._retired.append(client)  # closed below, or later where that is cancelled
            return host, await client.execute_command(*command)  # type: ignore[no-untyped-call]

        tasks = [asyncio.create_task(ask(host)) for host in hosts]
        try:
            await _until_most_answered(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close_retired()
        answers: list[tuple[Host, Any]] = []
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, AuthenticationError | NoPermissionError):
                raise error
            if isinstance(error, ResponseError) and _NOT_A_CLUSTER in str(error):
                raise CountersUnavailable(
                    f"the servers at {self._address.shown} are no Redis Cluster; name one server, or the Sentinels"
                )
            if not task.cancelled() and error is None:
                answers.append(task.result())
        return answers

    def _made(self, host: Host | None, *, is_sentinel: bool = False) -> Redis:
        user, password = self._address.sentinel_credentials if is_sentinel else self._address.credentials
        options: dict[str, Any] = {
            "db": 0 if is_sentinel else self._address.database,
            "username": user,
            "password": password,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,  # `RunningTimeout` counts; the library's are over when this process was held up
            "socket_connect_timeout": None,
            "max_connections": 1,
            "decode_responses": False,
        }
        if host is None:
            return Redis(unix_socket_path=self._address.socket_path, **options)
        if self._address.is_encrypted:
            tls = self._address.tls
            options |= {
                "ssl": True,
                "ssl_cert_reqs": "required",
                "ssl_check_hostname": True,
                "ssl_ca_certs": tls.authorities and str(tls.authorities),
                "ssl_certfile": tls.certificate and str(tls.certificate),
                "ssl_keyfile": tls.key and str(tls.key),
            }
        return Redis(host=host[0], port=host[1], **options)


async def _until_most_answered(tasks: Sequence[asyncio.Task[tuple[Host, Any]]]) -> None:
    """Wait until more than half have answered, all are done, or the time is over: some may be frozen."""
    pending = set(tasks)
    answered = 0
    with contextlib.suppress(TimeoutError):
        async with RunningTimeout(_FIND_SECONDS):
            while pending and answered <= len(tasks) // 2:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                answered += sum(task.exception() is None for task in done)


def _hosts(answers: Sequence[tuple[Host, Any]]) -> Iterable[Host]:
    return (host for host, _ in answers)


def _is_refusing_writes(result: object) -> bool:
    """Return whether a server says that it has too few replicas to accept writes, as an isolated one does."""
    return isinstance(result, ResponseError) and str(result).startswith("NOREPLICAS")
