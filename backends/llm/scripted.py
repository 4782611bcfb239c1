"""A model that plays a script of tokens, delays and faults: the project's only fake, used as an ordinary target.

Each word with the space before it is one token, in prompts and replies, so that tests can compute every count by hand.
A part of the script can be given in the last message or prompt: `[[script tokens=5 gap_ms=20]]`. A user's message may
contain an agent's tool calls, `[[call NAME {"argument": 1}]]`: the model makes these calls one after the other, if the
tools are offered, and then repeats the last result.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from backends.llm.base import ModelCall, Sink
from backends.llm.encoding_room import LARGE_BODY_BYTES
from contracts.api.chat import ChatRequest, GenerationRequest, Message, asked_effort
from contracts.api.completion import CompletionRequest
from contracts.api.generation import Continuation, Delta, Result
from contracts.errors import ConfigurationError, InvalidRequest, UpstreamBroken, UpstreamError, UpstreamUnreachable
from contracts.metering.usage import Usage
from contracts.serving.configuration import TargetSpec

_DEFAULT_REPLY: Final = (
    "Hello! I am the scripted model. I answer every prompt with these same words, "
    "one token at a time, so that everything around me can be measured."
)
_DIRECTIVE: Final = re.compile(r"\[\[script ([^\]]{0,200})\]\]")
_CALL: Final = re.compile(r"\[\[call ([\w.-]{1,128}) (\{.{0,2000}?\})\]\]", re.DOTALL)
_DIRECTIVE_WITHIN: Final = 4096  # characters at the beginning and at the end of a text
_PIECE_CHARACTERS: Final = 64 * 1024  # length of the pieces in which words are counted, to bound memory
_COUNTED: Final = ("scripted",)  # the key of the prompt's count in `ModelCall.prepared`
_WORD: Final = re.compile(r"\s*\S+")

Fault = Literal["", "refuse", "error", "break", "stall"]


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the model plays. Delays are in milliseconds; `tokens` repeats or cuts the reply to that length.

    The first `reasoning` tokens are reasoning, unless the effort is "none". `fault` happens after `after` tokens:
    refuse (as if nothing listened), error (status 500), break (the connection ends), stall (no further output).
    """

    reply: str = _DEFAULT_REPLY
    tokens: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    first_ms: Annotated[float, Meta(ge=0)] = 0.0
    gap_ms: Annotated[float, Meta(ge=0)] = 0.0
    cached: Annotated[int, Meta(ge=0)] = 0
    reasoning: Annotated[int, Meta(ge=0)] = 0
    burst: Annotated[int, Meta(ge=1)] = 1  # tokens per delta
    fault: Fault = ""
    after: Annotated[int, Meta(ge=0)] = 0


class ScriptedTarget:
    """Plays `spec.settings["script"]`, a mapping with the fields of Script."""

    def __init__(self, spec: TargetSpec, resolve_key: Callable[[str], str]) -> None:
        self.spec = spec
        self._fields = spec.settings.get("script", {})
        self._script = read_script(spec)
        self.running = 0  # calls in progress, for tests of cancellation

    async def count_input(self, call: ModelCall) -> int | None:
        """Return the number of words of all messages or prompts; `None` for requests without output."""
        return await _prompt_tokens(call, call.request) if isinstance(call.request, GenerationRequest) else None

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Play the script for one request."""
        request = call.request
        if not isinstance(request, GenerationRequest):
            raise InvalidRequest(f"the model {request.model!r} plays a script; it does not embed", param="model")
        if isinstance(request, CompletionRequest):
            _refuse_unplayed(request)
        script = self._script_for(request)
        played = _agent_step(request) if isinstance(request, ChatRequest) and request.tools else None
        if isinstance(played, str):
            script = msgspec.structs.replace(script, reply=played, tokens=None)
        prompt_tokens = await _prompt_tokens(call, request)
        cached = min(script.cached, prompt_tokens)
        used_in = Usage(input_text=prompt_tokens - cached, cache_read_text=cached)
        if script.fault == "refuse":
            raise UpstreamUnreachable(f"target {self.spec.id!r} cannot be reached: Connection refused")
        self.running += 1
        sink.served(self.spec.model or request.model, "")
        try:
            sink.report(used_in, "exact")
            await _wait(script.first_ms)
            if played is None or isinstance(played, str):
                finish_reason, made, thought = await self._play(script, call, request, sink)
            else:
                finish_reason, made, thought = _call_tool(played, sink)
        finally:
            self.running -= 1
        return Result(
            usage=used_in.plus(Usage(output_text=made - thought, output_reasoning=thought or None)),
            count_method="exact",
            finish_reason=finish_reason,
            model=self.spec.model or request.model,
            gap_clock="gateway",
            engine_output_tokens=made,
        )

    def can_continue(self, continuation: Continuation) -> bool:
        """Return `False`: a script cannot be continued."""
        return False

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def _play(
        self, script: Script, call: ModelCall, request: GenerationRequest, sink: Sink
    ) -> tuple[str, int, int]:
        """Play the reply; return the finish reason, the number of tokens, and that of reasoning tokens among them."""
        words = _words(script)
        limit = min((limit for limit in (request.output_limit, call.max_output) if limit is not None), default=None)
        finish_reason = "stop"
        if limit is not None and limit < len(words):
            words, finish_reason = words[:limit], "length"
        thoughts = script.reasoning if _may_think(call, request) else 0
        made = thought = 0
        for piece, thinks in _pieces(words, thoughts, script.burst):
            if made:
                await _wait(script.gap_ms)
            await self._fail_after(script, made)
            for index in range(request.choice_count):
                sink.delta(_delta(piece, index, thinks=thinks))
                made += len(piece)
                thought += len(piece) if thinks else 0
            await sink.drained()
        await self._fail_after(script, made)
        for index in range(request.choice_count):
            sink.delta(Delta(tokens=0, index=index, finish_reason=finish_reason))
        return finish_reason, made, thought

    async def _fail_after(self, script: Script, made: int) -> None:
        if not script.fault or made < script.after:
            return
        if script.fault == "error":
            raise UpstreamError(f"target {self.spec.id!r} failed with status 500")
        if script.fault == "break":
            raise UpstreamBroken("the target closed the connection in the middle of its reply")
        await asyncio.Event().wait()  # stall: until the caller gives up

    def _script_for(self, request: GenerationRequest) -> Script:
        last = _inputs(request)[-1]
        found = _directive(last) if isinstance(last, str) else None
        if found is None:
            return self._script
        base = self._fields if isinstance(self._fields, dict) else {}
        given = dict(pair.split("=", 1) for pair in found.group(1).split() if "=" in pair)
        try:
            return _script({**base, **given})
        except msgspec.ValidationError as error:
            field = request.prompt_field
            raise InvalidRequest(f"[[script ...]] in the last of {field}: {error}", param=field) from error


def read_script(spec: TargetSpec) -> Script:
    """Return a target's `settings.script`. Raises ConfigurationError if it is invalid."""
    try:
        return _script(spec.settings.get("script", {}))
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"target {spec.id!r}, script: {error}") from error


def count_prompt_tokens(request: GenerationRequest) -> int:
    """Count a request's input tokens: the words of all messages or prompts."""
    return sum(_count_words(one) if isinstance(one, str) else len(one) for one in _inputs(request))


def _count_words(text: str) -> int:
    """Count words piece by piece: a list of all words would take many times the text's memory."""
    count = 0
    for start in range(0, len(text), _PIECE_CHARACTERS):
        count += len(text[start : start + _PIECE_CHARACTERS].split())
        if start and not text[start - 1].isspace() and not text[start].isspace():
            count -= 1  # a word at the boundary was counted in both pieces
    return count


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Offered(msgspec.Struct, frozen=True):
    function: _Named = _Named()


class _AgentCall(msgspec.Struct, frozen=True):
    """One call of an agent's script; `number` counts from 0."""

    number: int
    name: str
    arguments: str


def _agent_step(request: ChatRequest) -> _AgentCall | str | None:
    """Return the next tool call of an agent's script, or the final answer; `None` if there is no script."""
    offered = {msgspec.json.decode(tool, type=_Offered).function.name for tool in request.tools or ()}
    calls: list[tuple[str, str]] = []
    results: list[str] = []
    for message in request.messages:
        if message.role == "user":
            text = _text(message)
            near = text if len(text) <= 2 * _DIRECTIVE_WITHIN else text[:_DIRECTIVE_WITHIN] + text[-_DIRECTIVE_WITHIN:]
            found = [(name, arguments) for name, arguments in _CALL.findall(near) if name in offered]
            if found:
                calls, results = found, []
        elif message.role == "tool":
            results.append(_text(message))
    if not calls:
        return None
    if len(results) < len(calls):
        return _AgentCall(len(results), *calls[len(results)])
    return f"The tool says: {results[-1]}"


def _call_tool(step: _AgentCall, sink: Sink) -> tuple[str, int, int]:
    """Make a tool call; return finish reason, number of tokens, and that of reasoning tokens among them."""
    function = {"name": step.name, "arguments": step.arguments}
    call = {"index": 0, "id": f"call_{step.number}", "type": "function", "function": function}
    made = _count_words(step.arguments) or 1
    sink.delta(Delta(tokens=made, tool_calls=msgspec.json.encode([call])))
    sink.delta(Delta(tokens=0, finish_reason="tool_calls"))
    return "tool_calls", made, 0


def _directive(text: str) -> re.Match[str] | None:
    if len(text) <= 2 * _DIRECTIVE_WITHIN:
        return _DIRECTIVE.search(text)
    return _DIRECTIVE.search(text, 0, _DIRECTIVE_WITHIN) or _DIRECTIVE.search(text, len(text) - _DIRECTIVE_WITHIN)


def _inputs(request: GenerationRequest) -> list[str | list[int]]:
    if isinstance(request, CompletionRequest):
        return request.prompts
    assert isinstance(request, ChatRequest)
    return [_text(message) for message in request.messages]


def _may_think(call: ModelCall, request: GenerationRequest) -> bool:
    return isinstance(request, ChatRequest) and (call.reasoning_effort or asked_effort(request)) != "none"


def _refuse_unplayed(request: CompletionRequest) -> None:
    """Raise InvalidRequest for fields that would change the script's answer."""
    for name, is_asked in (
        ("best_of", (request.best_of or 1) > 1),
        ("echo", request.echo is True),
        ("suffix", bool(request.suffix)),
        ("logprobs", request.logprobs is not None),
    ):
        if is_asked:
            raise InvalidRequest(f"{name} is not supported for the model {request.model!r}; leave it out", param=name)


async def _prompt_tokens(call: ModelCall, request: GenerationRequest) -> int:
    counted = call.prepared.get(_COUNTED)
    if isinstance(counted, int):
        return counted
    if len(call.body) <= LARGE_BODY_BYTES:
        tokens = count_prompt_tokens(request)
    else:
        tokens = await asyncio.to_thread(count_prompt_tokens, request)
    call.prepared[_COUNTED] = tokens
    return tokens


def _pieces(words: list[str], thoughts: int, burst: int) -> Iterator[tuple[list[str], bool]]:
    """Yield words in pieces of at most `burst`, none across the end of reasoning, each with whether it is reasoning."""
    for part, thinks in ((words[:thoughts], True), (words[thoughts:], False)):
        for start in range(0, len(part), burst):
            yield part[start : start + burst], thinks


def _delta(words: list[str], index: int, *, thinks: bool) -> Delta:
    text, tokens = "".join(words), len(words)
    if thinks:
        return Delta(tokens=tokens, reasoning=text, index=index, reasoning_tokens=tokens)
    return Delta(tokens=tokens, text=text, index=index)


def _text(message: Message) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return " ".join(part.text for part in content if part.text)


def _words(script: Script) -> list[str]:
    words = _WORD.findall(script.reply)
    if script.tokens is None:
        return words
    if not words:
        words = [" word"]
    repeats, rest = divmod(script.tokens, len(words))
    following = [word if word[:1].isspace() else " " + word for word in words]
    return (words + following * max(repeats - 1, 0) if repeats else []) + (following if repeats else words)[:rest]


async def _wait(milliseconds: float) -> None:
    await asyncio.sleep(milliseconds / 1000 if milliseconds > 0 else 0)


def _script(fields: object) -> Script:
    return msgspec.convert(fields, Script, strict=False)
