"""Embedding requests at vLLM: a request's inputs are sent separately, and its vectors returned together."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from backends.engine.base import EngineEvent
from backends.engine.embed_check import check_embed
from backends.engine.refusal import embed_refusal
from backends.engine.vllm_engine.failures import request_failure
from backends.engine.vllm_engine.llm_client import LlmClient, LlmOutput, LlmPrompt, LlmVector
from backends.engine.vllm_engine.step_metering import Account, StepMetering
from contracts.engine.wire import Embed, Embedded, ModelHello
from contracts.errors import ClientGone


class Conclude(Protocol):
    """A callback for requests that have ended; it reports them when their account is known."""

    def __call__(self, request_id: bytes, tell: Callable[[Account], EngineEvent], *, is_aborted: bool) -> None: ...


@dataclass(slots=True, eq=False)
class _Job:
    embed: Embed
    vectors: list[bytes]
    left: int
    dimensions: int = 0
    is_over: bool = False

    @property
    def name(self) -> str:
        return self.embed.request_id.hex()


@dataclass(slots=True)
class Embeddings:
    """Embedding requests in progress. `accept` and `abort` are thread-safe; the rest belongs to the stepping thread."""

    client: LlmClient
    hello: ModelHello
    metering: StepMetering
    conclude: Conclude
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _arrived: deque[Embed] = field(default_factory=deque)
    _unwanted: deque[bytes] = field(default_factory=deque)
    _jobs: dict[bytes, _Job] = field(default_factory=dict)

    @property
    def has_mail(self) -> bool:
        """Return whether there are new requests or aborts."""
        return bool(self._arrived or self._unwanted)

    @property
    def has_work(self) -> bool:
        """Return whether any request is in progress."""
        return bool(self._jobs or self._arrived or self._unwanted)

    def accept(self, embed: Embed) -> None:
        """Queue a request. Raises InvalidRequest if it exceeds a limit."""
        check_embed(embed, self.hello)
        self._arrived.append(embed)

    def abort(self, request_id: bytes) -> None:
        """Abort a request; an unknown id is ignored."""
        if self.hello.kind == "embed":
            self._unwanted.append(request_id)

    def receive(self) -> None:
        """Start new requests and end aborted ones."""
        while self._arrived:
            embed = self._arrived.popleft()
            job = _Job(embed, [b""] * len(embed.inputs), len(embed.inputs))
            self._jobs[embed.request_id] = job
            self.metering.begin(embed.request_id, embed.tenant, sum(map(len, embed.inputs)))
            for place, ids in enumerate(embed.inputs):
                self.client.embed(f"{place}_{job.name}", LlmPrompt(ids), partial(self._on_vector, job, place))
        while self._unwanted:
            unwanted = self._jobs.get(self._unwanted.popleft())
            if unwanted is not None:
                self._end(unwanted, partial(_failed, unwanted.embed, ClientGone("the request was aborted")), True)

    def _on_vector(self, job: _Job, place: int, output: LlmOutput | LlmVector | BaseException) -> None:
        if job.is_over:
            return
        if isinstance(output, BaseException):
            error, _ = request_failure(output, has_begun=False)
            self._end(job, partial(_failed, job.embed, error), True)
            return
        assert isinstance(output, LlmVector)
        job.vectors[place], job.dimensions = output.vector, output.dimensions
        job.left -= 1
        if not job.left:
            self._end(job, partial(_answer, job), False)

    def _end(self, job: _Job, tell: Callable[[Account], EngineEvent], is_aborted: bool) -> None:
        job.is_over = True
        del self._jobs[job.embed.request_id]
        if is_aborted:
            for place in range(len(job.embed.inputs)):
                self.client.abort(f"{place}_{job.name}")
        self.conclude(job.embed.request_id, tell, is_aborted=is_aborted)


def _failed(embed: Embed, error: Exception, account: Account) -> Embedded:
    return embed_refusal(embed.request_id, error, gpu=account.gpu)


def _answer(job: _Job, account: Account) -> Embedded:
    """Return the joined vectors, shortened to the requested dimensions and normalised again."""
    wanted = job.embed.dimensions or job.dimensions
    data = b"".join(job.vectors)
    if wanted < job.dimensions:
        vectors = np.frombuffer(data, dtype="<f4").reshape(-1, job.dimensions)[:, :wanted]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        data = (vectors / np.where(norms == 0, 1, norms)).astype("<f4").tobytes()
    return Embedded(
        request_id=job.embed.request_id,
        dimensions=wanted,
        vectors=data,
        input_tokens=sum(map(len, job.embed.inputs)),
        gpu=account.gpu,
    )
