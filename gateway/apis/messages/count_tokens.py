"""Counts a prompt's tokens, with the model's tokenizer if available: /v1/messages/count_tokens,
/v1/responses/input_tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from backends.llm.base import ModelCall
from contracts.access.endpoints import Endpoint
from contracts.api.chat import TranslatedChat
from contracts.api.requests import AnyRequest
from contracts.errors import UnsupportedParameter
from contracts.recording.records import CountMethod
from contracts.serving.configuration import KeyEntry, ModelSpec, PoolSpec, Snapshot
from gateway.apis.messages.operation import MESSAGES
from gateway.apis.messages.translation import read_prompt_as_chat
from gateway.apis.operations import Operation
from gateway.limits.estimates.counting import TokenEstimator, prompt_bytes
from gateway.replies.reply import JSON
from gateway.request.stages import Stages
from gateway.routing.routes.renaming import renamed
from gateway.wire.exchange import Exchange

PATH: Final = "/v1/messages/count_tokens"
_NO_REQUEST: Final = UUID(int=0)
_ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "messages": "messages",
    "responses": "responses",
    "generate_content": "generate_content",
}


@dataclass(frozen=True, slots=True)
class Counting:
    """Token counting in one API: its path, the reader of a prompt, and the answer.

    `native` reads prompts of models whose targets speak the API: these may contain what no chat can carry.
    """

    path: str
    operation: Operation
    read: Callable[[str, bytes], AnyRequest]
    answer: Callable[[int], object]

    def answers(self, path: str) -> bool:
        """Return whether a path counts tokens."""
        return path == self.path

    def reader(self, exchange: Exchange, snapshot: Snapshot) -> Callable[[str, bytes], AnyRequest]:
        """Return the reader of a prompt."""
        native = self.operation.native
        return self.read if native is None or native.reaches(exchange, snapshot) == "none" else native.untranslated


MESSAGES_COUNTING: Final = Counting(PATH, MESSAGES, read_prompt_as_chat, lambda tokens: {"input_tokens": tokens})


class CountTokens:
    """Counts the tokens of prompts. For a route, it counts as the model does that the route currently leads to first.

    No model is called, and nothing is charged or recorded. It counts as a request for limits on requests and
    concurrency.
    """

    def __init__(self, stages: Stages, estimator: TokenEstimator, counting: Counting = MESSAGES_COUNTING) -> None:
        self._counting = counting
        self.endpoint: Endpoint = _ENDPOINTS[counting.operation.api]
        self.errors = counting.operation.errors
        self._guard = stages.guard
        self._guide = stages.guide
        self._targets = stages.targets
        self._bodies = stages.bodies
        self._limiter = stages.limiter
        self._estimator = estimator

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that the path supports."""
        return ("POST",) if self._counting.answers(path) else ()

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """Count a prompt. Raises InvalidRequest, UnknownModel, PermissionDenied or LimitExceeded."""
        counting, resolve = self._counting, self._counting.operation.resolve
        read = counting.reader(exchange, snapshot)
        request = await self._bodies.read(read, exchange.header(b"content-type"), exchange.body, key.identity.tenant)
        if resolve is not None:
            self._guard.find(key, request, self.endpoint, snapshot)
            request = await resolve(request, key)
        assert isinstance(request, TranslatedChat)
        found = self._guard.find(key, request, self.endpoint, snapshot)
        if isinstance(found, ModelSpec):
            model, pool = found, snapshot.pools[found.pool]
        else:
            leg = self._guide.first_leg(found, snapshot)
            request, model, pool = renamed(request, leg.model.id), leg.model, leg.pool
        async with self._limiter.counting(key.identity, model.id, snapshot):
            tokens, method = await self._count(request, model, pool, key)
        named = ((b"x-request-id", exchange.request_id), (b"request-id", exchange.request_id))
        headers = (*named, (b"x-tollkeeper-count-method", method.encode()))
        exchange.send(200, JSON, msgspec.json.encode(counting.answer(tokens)), headers)

    async def _count(
        self, request: TranslatedChat, model: ModelSpec, pool: PoolSpec, key: KeyEntry
    ) -> tuple[int, CountMethod]:
        """Count at a target that can, such as an engine host; else estimate from earlier prompts.

        Raises UnsupportedParameter if every target would refuse the message.
        """
        tenant = key.identity.tenant
        if not request.messages:  # it was not translated
            return self._estimator.estimate(model.id, prompt_bytes(request.chat_body), tenant), "estimate"
        bounds = self._guard.bounds(key, request)
        call = ModelCall(
            request_id=_NO_REQUEST,
            path=MESSAGES.path,
            request=request,
            body=request.chat_body,
            tenant=tenant,
            cache_salt="",
            reasoning_effort=bounds.reasoning_effort,
        )
        refusal: UnsupportedParameter | None = None
        others = False  # which may answer the message
        for spec in pool.targets:
            target = self._targets.find(spec)
            try:
                exact = await target.count_input(call) if target is not None else None
            except UnsupportedParameter as error:
                refusal = error
                continue
            if exact is not None:
                return exact, "exact"
            others = others or target is not None
        if refusal is not None and not others:
            raise refusal
        return self._estimator.estimate(model.id, prompt_bytes(request.chat_body), tenant), "estimate"
