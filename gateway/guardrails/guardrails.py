"""The gateway's guardrails: which stages a request passes, and their results before a model is called."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from contracts.api.chat import ChatRequest, TranslatedChat
from contracts.api.embedding import EmbeddingRequest, TranslatedEmbedding
from contracts.api.media import TranscriptionRequest
from contracts.api.native import SYSTEM_FIELDS
from contracts.api.requests import AnyRequest
from contracts.errors import ConfigurationError, InvalidRequest, TollkeeperError, Unavailable
from contracts.guardrails.detector import Closing
from contracts.guardrails.finding import About, Finding, Shown
from contracts.guardrails.policy import GuardrailPolicy, covering
from contracts.mcp.servers import SEPARATOR
from contracts.serving.configuration import Snapshot
from gateway.apis.operations import Operation
from gateway.apis.reading import read_chat
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.guard_plan import GuardPlan, StageBox, compile_plan
from gateway.guardrails.guard_stage import GuardStage, Looks
from gateway.guardrails.request_guard import RequestGuard, refusal
from gateway.guardrails.request_rule import Objection, RequestRule
from gateway.guardrails.request_texts import RequestTexts
from gateway.guardrails.screening.judged_definitions import (
    DefinitionMemory,
    JudgedDefinitions,
    judge_definitions,
    key_of,
)
from gateway.guardrails.screening.screen import Screen, Screening
from gateway.request.request_state import RequestState
from gateway.wire.exchange import Exchange

_log = logging.getLogger(__name__)

_MOST_PLANS: Final = 4096
_LONG_BODY: Final = 256 * 1024  # bytes
_MOST_SEARCHED: Final = 64 * 1024  # bytes of a body that is searched as a whole: tools in a longer one are remembered
_JSON: Final = "application/json"
_TOKEN_IDS: Final = "token_ids"
_TOKEN_LISTS: Final = re.compile(rb'"(?:prompt|input)"[ \t\n\r]*:[ \t\n\r]*\[')
_NOBODY: Final = About()  # for stages that look at texts alone
_TOOLS: Final = "tools"


class Guardrails:
    """Holds the plans of one snapshot's policies, each built when a request first needs it."""

    def __init__(
        self,
        dependencies: DetectorDependencies,
        address_of: Callable[[Exchange], str] = lambda exchange: exchange.address,
    ) -> None:
        """Accept the dependencies. `address_of` returns the caller's address, which differs from the connection's
        behind a trusted proxy.
        """
        self._dependencies = dependencies
        self._address_of = address_of
        self._box = StageBox(dependencies)
        self._policies: tuple[GuardrailPolicy, ...] = ()
        self._by_request: dict[tuple[str, str], GuardPlan | str] = {}
        self._by_policies: dict[tuple[int, ...], GuardPlan | str] = {}  # by who they are
        self._definitions = DefinitionMemory()
        self.definition_findings: Counter[tuple[str, str]] = Counter()  # in MCP tools: server and action
        self.faults: tuple[str, ...] = ()

    def check(self, snapshot: Snapshot) -> None:
        """Build all stages of a snapshot. Raises ConfigurationError on the first invalid one."""
        for policy in snapshot.guardrails:
            compile_plan([policy], self._dependencies, self._box)

    def sync(self, snapshot: Snapshot) -> list[Looks]:
        """Use another snapshot; return the detectors that are no longer needed.

        A guardrail that cannot be built is logged once, and the requests that it covers are refused until it is
        corrected.
        """
        if snapshot.guardrails == self._policies:
            return []
        self._policies = snapshot.guardrails  # which also keeps them, and so what they are known by
        self._by_request.clear()
        self._by_policies.clear()
        faults = []
        for policy in snapshot.guardrails:
            try:
                compile_plan([policy], self._dependencies, self._box)
            except ConfigurationError as error:
                _log.error("guardrail cannot be used, requests are refused", extra={"reason": error.message})
                faults.append(error.message)
        self.faults = tuple(faults)
        return self._box.keep(snapshot.guardrails)

    async def close(self) -> None:
        """Close all detectors."""
        await let_go(self._box.keep(()))

    def guard_for(self, life: RequestState, exchange: Exchange) -> RequestGuard | None:
        """Return a request's guard; `None` if no policy covers it. Raises Unavailable if a policy that covers it cannot
        be used.
        """
        # The newest policies hold, also for a request that began before they came: to go back to older ones would end
        # what the newer have in progress, and forget what they have counted.
        plan = self._plan_for(life.who.tenant, life.requested_model)
        if isinstance(plan, str):
            if not plan:
                return None
            raise _unusable(plan)
        return RequestGuard(plan, _NOBODY if plan.is_immediate else _about(life, exchange, self._address_of(exchange)))

    @staticmethod
    def passes(guard: RequestGuard, life: RequestState) -> bool:
        """Return whether it is certain that no stage finds anything in a request, so that it can continue unchanged.

        The body is searched as raw JSON, which takes a fraction of the time of parsing it and inspecting each text. If
        that does not suffice, the result is False, and `examine` does the complete inspection.
        """
        plan, request = guard.plan, life.request
        if request is None or not plan.only_searches:
            return False
        body = _body_of(request, life)
        return len(body) <= _MOST_SEARCHED and not _may_hold_token_ids(body) and plan.input.finds_nothing_in(body)

    async def examine(self, guard: RequestGuard, life: RequestState, operation: Operation) -> AnyRequest:
        """Run the stages before the model on a request; return the resulting request.

        Raises ContentBlocked, InvalidRequest if a rule refuses it, and the errors of detectors that count requests.
        """
        request = life.request
        assert request is not None
        plan = guard.plan
        if not plan.rules and not plan.reads_texts:
            return request
        native = request.native if isinstance(request, TranslatedChat | TranslatedEmbedding) else None
        texts = RequestTexts(
            _body_of(request, life),
            system_field=SYSTEM_FIELDS[native.api]
            if native is not None and isinstance(request, TranslatedChat)
            else "",
            puts_aside=bool(plan.input_stages) and not plan.of_requests,
        )
        self._apply_rules(guard, life, request, texts)
        await self.examine_texts(guard, texts, len(life.body))
        for marker in plan.markers:
            line = marker.detector.mark(guard.about)
            if line and not marker.spec.dry_run:
                texts.mark(line)
        if texts.is_changed and native is not None and native.refusal is None:
            # It is changed in its translation, which is all that targets are given then.
            assert isinstance(request, TranslatedChat | TranslatedEmbedding)
            life.request = msgspec.structs.replace(request, native=None)
            guard.has_changed = True
            guard.begin_again()
            changed = await self.examine(guard, life, operation)
            if isinstance(request, TranslatedEmbedding) and isinstance(changed, EmbeddingRequest):
                # Here both are kept: no embedding is asked for in one target's words and answered in another's.
                native = msgspec.structs.replace(native, body=texts.body, fields=None)
                changed = life.request = msgspec.structs.replace(
                    request, input=changed.input, embedding_body=life.body, native=native
                )
            return changed
        if texts.is_changed:
            life.request = request = _replaced(life, request, operation, texts)
            guard.has_changed = True
        return request

    async def examine_texts(self, guard: RequestGuard, texts: RequestTexts, size_bytes: int) -> None:
        """Run all stages before a model on the texts, and redact what they find.

        Raises ContentBlocked, and the errors of detectors that count requests.
        """
        if not guard.has_begun_again:
            _watch(guard, texts)
        if texts.holds_token_ids:
            _note_unread(guard)
        # A long body takes seconds where it is full of what looks like something: others go on meanwhile.
        size_bytes -= sum([len(one) for one in texts.aside.values()])
        is_long = size_bytes > _LONG_BODY
        screening = await asyncio.to_thread(_screened, guard, texts) if is_long else _screened(guard, texts)
        guard.note(screening.verdicts)
        judged: list[tuple[str, JudgedDefinitions]] = []
        for name, raw in texts.aside.items():
            one = await self._judge(guard.plan, name, raw)
            guard.note(list(one.verdicts))
            judged.append((name, one))
        if screening.blocked is not None:
            raise refusal(screening.blocked)
        for name, one in judged:
            if one.blocked is not None:
                raise refusal(one.blocked, one.place)
            if one.changed is not None:
                texts.replace_aside(name, one.changed)
        if screening.cuts:
            texts.cut(screening.cuts)
        if guard.plan.awaited:
            await _ask(guard, RequestTexts(texts.body) if screening.cuts or judged else texts)

    async def judge_tool(self, tenant: str, tool: str, definition: bytes) -> JudgedDefinitions | None:
        """Return the result of the policies for a tenant's calls of a tool on the tool's definition; `None` if no
        policy inspects it. Raises Unavailable if a policy cannot be used.
        """
        plan = self._plan_for(tenant, tool)
        if isinstance(plan, str):
            if plan:
                raise _unusable(plan)
            return None
        return await self._judge(plan, _TOOLS, definition, tool) if plan.input_stages else None

    async def _judge(self, plan: GuardPlan, name: str, definitions: bytes, tool: str = "") -> JudgedDefinitions:
        """Judge definitions of tools, or remember what was judged. `tool`: it is an MCP server's, and has no record."""
        key = key_of(plan.digest, definitions)
        judged = self._definitions.find(key)
        if judged is None:
            if len(definitions) > _LONG_BODY:
                judged = await asyncio.to_thread(judge_definitions, plan.input, name, definitions)
            else:
                judged = judge_definitions(plan.input, name, definitions)
            self._definitions.keep(key, judged)
            if tool and judged.verdicts:
                told = [verdict.text for verdict in judged.verdicts]
                _log.warning(
                    "guardrails found something in a tool's definition", extra={"tool": tool, "verdicts": told}
                )
                server = tool.partition(SEPARATOR)[0]
                self.definition_findings.update((server, verdict.action) for verdict in judged.verdicts)
            if tool:
                await asyncio.sleep(0)  # a list has a thousand of them: others go on meanwhile
        return judged

    def is_immediate(self, tenant: str, name: str) -> bool:
        """Return whether all stages for a tenant's requests to a model finish at once, without waiting."""
        plan = self._plan_for(tenant, name)
        return isinstance(plan, GuardPlan) and plan.is_immediate

    def _plan_for(self, tenant: str, name: str) -> GuardPlan | str:
        plan = self._by_request.get((tenant, name))
        if plan is None:
            if len(self._by_request) >= _MOST_PLANS:
                self._by_request.clear()
            plan = self._by_request[tenant, name] = self._plan_of(tenant, name)
        return plan

    def _plan_of(self, tenant: str, name: str) -> GuardPlan | str:
        """Return the plan of a tenant's requests for a name, and why there is none; empty if no guardrail applies."""
        policies = covering(self._policies, tenant, name)
        if not policies:
            return ""
        # Not by their names: of policies that cannot be read several may have the same.
        names = tuple(map(id, policies))
        found = self._by_policies.get(names)
        if found is None:
            try:
                found = compile_plan(policies, self._dependencies, self._box)
            except ConfigurationError as error:
                found = error.message
            self._by_policies[names] = found
        return found

    def _apply_rules(self, guard: RequestGuard, life: RequestState, request: AnyRequest, texts: RequestTexts) -> None:
        if not isinstance(texts.fields, dict):
            return
        for stage in guard.plan.rules:
            objections = stage.detector.judge(life.requested_model, request, texts.fields)
            if objections:
                guard.note([stage.verdict([Finding(0, 0, one.kind) for one in objections])])
            if stage.acts:
                for one in objections:
                    texts.set(_mended(one, stage))
            if not stage.spec.dry_run:
                defaults = stage.detector.defaults(request)
                if defaults:
                    texts.set({field: value for field, value in defaults.items() if field not in texts.fields})


async def let_go(detectors: Iterable[Looks]) -> None:
    """Cancel running background work of detectors that no snapshot uses any more."""
    for detector in detectors:
        if isinstance(detector, Closing):
            await detector.close()


def _about(life: RequestState, exchange: Exchange, address: str) -> About:
    request = life.request
    return About(
        request_id=life.id_bytes,
        tenant=life.who.tenant,
        key_id=life.who.key_id,
        requested_model=life.requested_model,
        api=life.operation.api,
        address=address,
        user_agent=exchange.header(b"user-agent")[:200],
        at_ns=life.started_at_ns,
        wants_logprobs=isinstance(request, ChatRequest) and request.logprobs is True,
        output_limit=None if request is None else request.output_limit,
    )


def _unusable(plan: str) -> Unavailable:
    return Unavailable(
        f"guardrails of this request cannot be used ({plan}); the gateway's operators can mend it",
        code="guardrail_unavailable",
    )


def _screened(guard: RequestGuard, texts: RequestTexts) -> Screening:
    """Have the stages look that are at hand."""
    plan, screen = guard.plan, guard.plan.input
    if plan.of_requests:
        own = [GuardStage(one.spec, one.side, one.detector.for_request(guard.about)) for one in plan.of_requests]
        screen = Screen([*plan.input_stages, *own])
    return screen.check(texts.shown) if screen.stages else Screening([], {})


def _mended(objection: Objection, stage: GuardStage[RequestRule]) -> dict[str, object]:
    """Return the corrected fields of a request. Raises InvalidRequest if it must be refused, or cannot be corrected."""
    if stage.spec.action == "redact" and objection.mended is not None:
        return dict(objection.mended)
    raise InvalidRequest(
        f"{objection.message} (guardrail stage {stage.spec.name!r})", param=objection.param, code="request_not_allowed"
    )


def _watch(guard: RequestGuard, texts: RequestTexts) -> None:
    """Run the stages that watch requests as they arrive. Raises their errors."""
    for stage in guard.plan.watches:
        try:
            found = list(stage.detector.watch(_words_of(texts), guard.about))
        except TollkeeperError as error:
            guard.note([stage.verdict([Finding(0, 0, error.error_code)])])
            if not stage.spec.dry_run:
                raise
            continue
        if found:
            guard.note([stage.verdict(found)])


def _note_unread(guard: RequestGuard) -> None:
    """Record a prompt of token ids as a finding of each stage that cannot read it. Raise ContentBlocked."""
    plan = guard.plan
    for stage in (*plan.input_stages, *plan.of_requests, *plan.awaited):
        verdict = stage.verdict([Finding(0, 0, _TOKEN_IDS)])
        guard.note([verdict])
        if stage.acts:
            raise refusal(verdict)


async def _ask(guard: RequestGuard, texts: RequestTexts) -> None:
    """Run the stages that call services, on the texts as the model would get them. Raises ContentBlocked."""
    for stage in guard.plan.awaited:
        found = list(await stage.detector.look(_words_of(texts), guard.about))
        if found:
            verdict = stage.verdict(found)
            guard.note([verdict])
            if stage.acts and verdict.action != "flag":
                raise refusal(verdict)


def _words_of(texts: RequestTexts) -> list[Shown]:
    """Return the texts that are no names."""
    return [shown for shown in texts.shown if not shown.is_name]


def _may_hold_token_ids(body: bytes) -> bool:
    """Return whether a prompt may consist of token ids, in JSON without escapes in its names."""
    return (b'"prompt"' in body or b'"input"' in body) and _TOKEN_LISTS.search(body) is not None


def _body_of(request: AnyRequest, life: RequestState) -> bytes:
    """Return what guardrails inspect: all that a target may be sent, in the API's own format if one speaks it."""
    if isinstance(request, TranscriptionRequest):
        return request.texts
    if isinstance(request, TranslatedEmbedding) and request.native is not None:
        return request.native.body
    if not isinstance(request, TranslatedChat):
        return life.body
    return request.chat_body if request.native is None else request.native.body


def _replaced(life: RequestState, request: AnyRequest, operation: Operation, texts: RequestTexts) -> AnyRequest:
    """Return the request as the stages have changed it, for calling the model."""
    body = texts.body
    if isinstance(request, TranscriptionRequest):
        raise InvalidRequest(
            "a guardrail would change this form, which is passed on as it is; leave out what the guardrail is about",
            code="request_not_allowed",
        )
    if isinstance(request, TranslatedEmbedding) and request.native is not None:  # nothing else can take it
        return msgspec.structs.replace(request, native=msgspec.structs.replace(request.native, body=body, fields=None))
    if not isinstance(request, TranslatedChat):
        life.body = body
        return operation.read(_JSON, body)
    native = request.native
    if native is not None and operation.native is not None:
        chat: ChatRequest = operation.native.again(request, body)
        changed = {field: getattr(chat, field) for field in ChatRequest.__struct_fields__}
        fields = chat.chat_fields if isinstance(chat, TranslatedChat) else None
        native = msgspec.structs.replace(native, body=body, fields=fields)
        return msgspec.structs.replace(request, **changed, chat_body=body, chat_fields=fields, native=native)
    chat = read_chat(_JSON, body)
    changed = {field: getattr(chat, field) for field in chat.__struct_fields__}
    # What only some servers understand is left out where something was cut: it says the same once more.
    marked = texts.as_changed(request.marked_body) if request.marked_body and not texts.is_cut else b""
    return msgspec.structs.replace(request, **changed, chat_body=body, marked_body=marked)
