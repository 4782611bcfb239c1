"""Starts the processes of an installation in order, keeps them running, and stops them in reverse order."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from backends.network.tls import own_server_tls
from contracts.errors import ConfigurationError
from tollkeeper.children import Backoff, Child, ChildSpec, PrintLine, describe_status
from tollkeeper.own_gateway import is_https

_POLL_SECONDS = 0.1
_PROBE_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Processes that start together when the previous stage is ready. `runs_once`: they must end with status 0."""

    children: tuple[ChildSpec, ...]
    runs_once: bool = False


@dataclass(frozen=True, slots=True)
class ProcessTimeouts:
    """Timeouts in seconds: until a stage is ready, until a process ends, between restarts."""

    ready_seconds: float = 180.0  # all processes import at the same time, on few busy cores
    grace_seconds: float = 25.0  # the embedded store may take 20 to write its parts
    backoff: Backoff = field(default_factory=Backoff)


class Supervisor:
    """Runs the child processes of an installation. Each instance can run once."""

    def __init__(
        self,
        stages: Sequence[Stage],
        run_directory: Path,
        print_line: PrintLine,
        patience: ProcessTimeouts | None = None,
    ) -> None:
        self._stages = stages
        self._run_directory = run_directory
        self._print_line = print_line
        self._patience = patience or ProcessTimeouts()
        self._started: list[list[Child]] = []  # by stage, in the order they were started
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def children(self) -> list[Child]:
        """Return the running children, without those that run once."""
        return [child for stage in self._started for child in stage]

    async def start(self) -> None:
        """Start the stages in order, each when the previous one is ready.

        Raises ConfigurationError if a process has an invalid configuration or is not ready in time; processes started
        before run until `stop`.
        """
        for stage in self._stages:
            if stage.runs_once:
                for spec in stage.children:
                    await self._run_to_the_end(spec)
            else:
                await self._start_stage(stage)

    async def wait_for_failure(self) -> None:
        """Wait until a process fails permanently, and raise its error. Restarts are not failures."""
        done, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def drain(self) -> None:
        """Let the processes that drain finish their requests, while the processes they need still run."""
        draining = [child for child in self.children if child.spec.drains and child.was_ready and child.pid is not None]
        for child in draining:
            child.drain()
        await asyncio.gather(*(self._wait_until_closed(child) for child in draining))

    async def stop(self, *, grace_seconds: float | None = None) -> None:
        """Stop the processes that end first, then all others, last stage first. May be called again."""
        grace = self._patience.grace_seconds if grace_seconds is None else grace_seconds
        await asyncio.gather(*(child.stop(grace) for child in self.children if child.spec.ends_first))
        for stage in reversed(self._started):
            await asyncio.gather(*(child.stop(grace) for child in stage))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run_to_the_end(self, spec: ChildSpec) -> None:
        child = self._child(spec)
        self._started.append([child])  # registered first, so that `stop` ends it too
        status = await child.run_once()
        self._started.pop()
        if status != 0:
            reason = child.last_line if status > 0 else describe_status(status)
            raise ConfigurationError(f"{spec.name} failed: {reason}")

    async def _start_stage(self, stage: Stage) -> None:
        children = [self._child(spec) for spec in stage.children]
        self._started.append(children)
        for child in children:
            self._tasks[child.spec.name] = asyncio.create_task(child.keep_running(), name=child.spec.name)
        await asyncio.gather(*(self._wait_until_ready(child) for child in children))

    async def _wait_until_ready(self, child: Child) -> None:
        task = self._tasks[child.spec.name]
        deadline = asyncio.get_running_loop().time() + self._patience.ready_seconds
        # Ignores proxy variables: these are local processes.
        certificate = child.spec.certificate
        verify = own_server_tls(Path(certificate)) if certificate else is_https(child.spec.ready_url)
        async with httpx.AsyncClient(timeout=_PROBE_TIMEOUT_SECONDS, trust_env=False, verify=verify) as client:
            while not await _answers(client, child):
                if task.done():
                    task.result()  # raises the error
                    return  # it was stopped
                if asyncio.get_running_loop().time() > deadline:
                    raise ConfigurationError(
                        f"{child.spec.name} is not ready after {self._patience.ready_seconds:g} s; "
                        f"it last said: {child.last_line}"
                    )
                await asyncio.sleep(_POLL_SECONDS)
        child.was_ready = True

    async def _wait_until_closed(self, child: Child) -> None:
        """Wait until a process's port is closed, at most for the grace period."""
        host = urlsplit(child.spec.ready_url)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience.grace_seconds):
                while child.pid is not None and await _is_open(host.hostname or "", host.port or 0):
                    await asyncio.sleep(_POLL_SECONDS)

    def _child(self, spec: ChildSpec) -> Child:
        return Child(spec, self._run_directory, self._print_line, self._patience.backoff)


async def _is_open(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


async def _answers(client: httpx.AsyncClient, child: Child) -> bool:
    if child.pid is None:
        return False
    if not child.spec.ready_url:
        return True
    try:
        reply = await client.get(child.spec.ready_url)
    except httpx.HTTPError:
        return False
    return reply.status_code == 200
