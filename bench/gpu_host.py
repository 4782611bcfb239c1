"""The engine host as a process of its own, and one connection to it that asks as a gateway does."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from bench.gpu_runs import Answer, Run
from bench.gpu_workloads import Ask, Workload
from contracts.engine.frame_splitter import FrameSplitter
from contracts.engine.wire import (
    WIRE_VERSION,
    Attach,
    Delta,
    Finished,
    FromGateway,
    FromHost,
    Hello,
    Sampling,
    Steps,
    StepsAck,
    Submit,
    frame,
    from_host,
)
from contracts.recording.records import StepRecord, decode_record

ROOT: Final = Path(__file__).resolve().parents[1]
_CONNECT_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 0.3


class HostProcess:
    """`python -m backends.engine` with vLLM, its log in its data directory."""

    def __init__(self, model: Path, data: Path, arguments: str, settings: Mapping[str, str] | None = None) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.model = model.name
        self.socket = data / "run" / "engine-default.sock"
        self.log = data / "host.log"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
            "TOLLKEEPER_DATA": str(data),
            "TOLLKEEPER_ENGINE_KIND": "vllm",
            "TOLLKEEPER_ENGINE_MODEL": f"{model.name}={model}",
            "TOLLKEEPER_ENGINE_VLLM_ARGUMENTS": arguments,
            "VLLM_CACHE_ROOT": str(data / "compiled"),  # another engine may be compiling at the same time
            **(settings or {}),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "backends.engine"],
            env=environment,
            cwd=ROOT,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
        )

    @property
    def is_running(self) -> bool:
        """Return whether the process lives."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process without warning."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the process, by force if it does not end."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class HostLine(asyncio.Protocol):
    """One connection. Deltas are timed as they come; step records are kept and acknowledged."""

    def __init__(self) -> None:
        self._splitter = FrameSplitter()
        self._transport: asyncio.WriteTransport | None = None
        self._answers: dict[bytes, tuple[Answer, asyncio.Future[Finished]]] = {}
        self._requests = 0
        self.hello: Hello | None = None
        self.steps: list[StepRecord] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves."""
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is none by name
        self._send(Attach(version=WIRE_VERSION, gateway="bench", wants_kv=False))

    def data_received(self, data: bytes) -> None:
        """Receive frames."""
        now = time.monotonic()
        for body in self._splitter.feed(data):
            self._take(from_host(body), now)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what is waiting."""
        for _, future in self._answers.values():
            if not future.done():
                future.set_exception(RuntimeError("the engine host closed the connection"))

    def close(self) -> None:
        """Close the connection: step records go to the next that wants them."""
        if self._transport is not None:
            self._transport.close()

    async def ready(self, model: str, host: HostProcess, seconds: float) -> None:
        """Wait until the model serves. Raises RuntimeError when it does not, or the host dies."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and host.is_running:
            state = next((one.state for one in self.hello.models if one.id == model), "") if self.hello else ""
            if state == "ready":
                return
            if state == "failed":
                break
            await asyncio.sleep(0.2)
        tail = host.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the engine host did not serve {model} within {seconds:g} s: {tail}")

    async def run(self, workload: Workload, model: str) -> Run:
        """Ask all of a workload and wait for the answers and their steps."""
        began, began_ns, first = time.monotonic(), time.time_ns(), len(self.steps)
        limits = {tenant: asyncio.Semaphore(workload.concurrency) for tenant in workload.tenants}
        answers = await asyncio.gather(*(self._ask(ask, model, began, limits[ask.tenant]) for ask in workload.asks))
        ended_ns = time.time_ns()
        await asyncio.sleep(_SETTLE_SECONDS)
        return Run(workload.name, list(answers), self.steps[first:], began_ns, ended_ns)

    async def _ask(self, ask: Ask, model: str, began: float, limit: asyncio.Semaphore) -> Answer:
        wait = began + ask.start_seconds - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        async with limit:
            self._requests += 1
            request_id = ((1 << 64) + self._requests).to_bytes(16, "big")
            future: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
            answer = Answer(time.monotonic())
            self._answers[request_id] = (answer, future)
            self._send(
                Submit(
                    request_id=request_id,
                    model=model,
                    token_ids=list(ask.prompt),
                    sampling=Sampling(max_tokens=ask.output_tokens, temperature=0.0, ignore_eos=True),
                    tenant=ask.tenant,
                )
            )
            finished = await future
            answer.ended = time.monotonic()
            if finished.finish_reason != "length":
                raise RuntimeError(f"a request ended as {finished.finish_reason}: {finished.error_message}")
            return answer

    def _take(self, message: FromHost, now: float) -> None:
        if isinstance(message, Delta):
            found = self._answers.get(message.request_id)
            if found is not None and message.token_ids:
                found[0].add(len(message.token_ids), now)
        elif isinstance(message, Finished):
            found = self._answers.pop(message.request_id, None)
            if found is not None:
                found[1].set_result(message)
        elif isinstance(message, Steps):
            self.steps += [one for one in map(decode_record, message.records) if isinstance(one, StepRecord)]
            self._send(StepsAck(sequence=message.last_sequence))
        elif isinstance(message, Hello):
            self.hello = message

    def _send(self, message: FromGateway) -> None:
        assert self._transport is not None
        self._transport.write(frame(message))


async def connect(host: HostProcess) -> HostLine:
    """Connect as soon as the host listens. Raises RuntimeError when it does not."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while host.is_running:
        try:
            _, line = await asyncio.get_running_loop().create_unix_connection(HostLine, str(host.socket))
            return line
        except OSError:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
    raise RuntimeError(f"the engine host does not listen: {host.log.read_text(errors='replace')[-2000:]}")
