"""Passes one answer to the client through the guardrail stages: each of its texts is screened, and held-back text is
inserted later.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

import msgspec

from contracts.api.generation import Delta
from contracts.errors import UpstreamBroken
from contracts.guardrails.finding import About, Shown, Verdict
from contracts.guardrails.plain_text import plain_text
from gateway.guardrails.guard_plan import OutputPlan, Streams
from gateway.guardrails.request_texts import TOOL_OBJECTS, rename
from gateway.guardrails.screening.spelling import AS_IS, IN_JSON, Spelling
from gateway.guardrails.screening.stream_screen import StreamScreen

_calls: Final = msgspec.json.Decoder(list[dict[str, object]])
_any: Final = msgspec.json.Decoder()
_encode: Final = msgspec.json.Encoder().encode
_TEXT: Final = "text"
_THOUGHT: Final = "reasoning"
_REFUSAL: Final = "refusal"
_PARTS: Final = (("function", "arguments"), ("custom", "input"))  # of a tool's call, with what the model writes there
_ROLE: Final = "assistant"

Name = tuple[int, str]  # of a text: its choice, and what it is there


class _Channel:
    """One text of the answer: its screens, and the time (ns) since which part of it is delayed.

    `gone` is the held-back part that has been sent already, because another text came in between.
    """

    __slots__ = ("acting", "gone", "since_ns", "watching")

    def __init__(self, streams: Streams, spelling: Spelling) -> None:
        self.acting = None if streams.acting is None else streams.acting.stream(spelling)
        self.watching = None if streams.watching is None else streams.watching.stream(spelling)
        self.gone = ""
        self.since_ns: int | None = None

    @property
    def screens(self) -> Iterator[StreamScreen]:
        """Yield the screens of the text."""
        if self.watching is not None:
            yield self.watching
        if self.acting is not None:
            yield self.acting


class AnswerFilter:
    """The texts of one answer, by choice. `blocked` is the stage that ended it."""

    def __init__(self, plan: OutputPlan, about: About) -> None:
        """Accept the stages, and what is known about the request."""
        self._plan = plan
        self._about = about if plan.is_immediate else msgspec.structs.replace(about, direction="output")
        self._streams = plan.streams(self._about)
        self._channels: dict[Name, _Channel] = {}
        self._last: dict[int, str] = {}  # by choice: the text that came last
        self._said: dict[Name, list[str]] = {}  # where somebody looks at whole texts
        self._kept: list[Delta] = []  # where all waits
        self._late: list[Verdict] = []
        self._blocked: Verdict | None = None
        self.held_ns = 0  # the longest that a piece has waited

    @property
    def blocked(self) -> Verdict | None:
        """Return the verdict that ended the answer; `None` if the answer continues."""
        return self._blocked

    @property
    def acts(self) -> bool:
        """Return whether a stage may change the answer; otherwise its pieces are sent unchanged."""
        return self._plan.acts

    @property
    def verdicts(self) -> list[Verdict]:
        """Return the verdicts so far."""
        found = [
            verdict for channel in self._channels.values() for screen in channel.screens for verdict in screen.verdicts
        ]
        return found + self._late

    def begin(self) -> None:
        """Drop the text of a failed target, if the client has received none of it. Its verdicts are kept."""
        self._late = self.verdicts
        self._blocked = None
        for kept in (self._channels, self._last, self._said, self._kept):
            kept.clear()

    def _is_stopped(self) -> bool:
        """Return whether the answer was ended.

        A method, so that no type checker assumes its result is unchanged after the next piece: compiled code would then
        read `_blocked` as None, and fail.
        """
        return self._blocked is not None

    def take(self, delta: Delta, now_ns: int) -> list[Delta]:
        """Accept a delta; return the deltas that may be sent now, from it and from what was held back before.

        Raises UpstreamBroken on invalid tool calls.
        """
        if self._is_stopped():
            return []
        if not self._plan.acts:
            self._watch(delta, now_ns)
            return [delta]
        index = delta.index
        passed: list[Delta] = []
        for name, text in ((_THOUGHT, delta.reasoning), (_TEXT, delta.text), (_REFUSAL, delta.refusal)):
            if text and not self._is_stopped():
                passed += self._turn_to(index, name, now_ns)
                passed += _said_by(index, name, self._go((index, name), AS_IS, text, now_ns))
        if delta.tool_calls and not self._is_stopped():
            passed += self._take_calls(index, delta.tool_calls, now_ns)
        if delta.finish_reason is not None and not self._is_stopped():
            passed += self.rest(index, now_ns)
            if not self._is_stopped():
                passed.append(Delta(0, index=index, finish_reason=delta.finish_reason, stop=delta.stop))
        if self._plan.holds_all:
            self._kept += passed
            return []
        return _joined(passed)

    def _watch(self, delta: Delta, now_ns: int) -> None:
        """Inspect a piece that is sent unchanged."""
        index = delta.index
        for name, text in ((_THOUGHT, delta.reasoning), (_TEXT, delta.text), (_REFUSAL, delta.refusal)):
            if text:
                self._go((index, name), AS_IS, text, now_ns)
        if delta.tool_calls:
            with contextlib.suppress(UpstreamBroken):  # what only looks changes nothing
                self._take_calls(index, delta.tool_calls, now_ns)
        if delta.finish_reason is not None:
            self.rest(index, now_ns)

    def rest(self, index: int | None, now_ns: int) -> list[Delta]:
        """Return the held-back rest of the texts of one choice, or of all choices, because no more text follows."""
        passed: list[Delta] = []
        if self._is_stopped():
            return passed
        for name, channel in list(self._channels.items()):
            if index is None or name[0] == index:
                passed += self._flushed(name, channel, now_ns)
        return passed

    def _flushed(self, name: Name, channel: _Channel, now_ns: int) -> list[Delta]:
        if channel.watching is not None:
            channel.watching.flush()
        if channel.acting is None or not channel.acting.is_holding:
            return []
        out = self._unsaid(channel, channel.acting, channel.acting.flush())
        self._note(channel, now_ns)
        return _said_by(*name, out)

    def _unsaid(self, channel: _Channel, acting: StreamScreen, text: str) -> str:
        """Return the part of a text that was not sent before; nothing if that was the start of a match: the answer
        ends.
        """
        gone = channel.gone
        if text.startswith(gone):
            channel.gone = ""
            return text[len(gone) :]
        if gone.startswith(text):
            channel.gone = gone[len(text) :]
            return ""
        self._blocked = self._blocked or acting.blocked or next(reversed(acting.verdicts), None)
        return ""

    def _turn_to(self, index: int, name: str, now_ns: int) -> list[Delta]:
        """Return the held-back rest of the previous text when another starts: its place is before that."""
        last, self._last[index] = self._last.get(index), name
        if last is None or last == name:
            return []
        channel = self._channels.get((index, last))
        if channel is None or channel.acting is None or not channel.acting.is_holding:
            return []
        out = self._unsaid(channel, channel.acting, channel.acting.pause())
        self._note(channel, now_ns)
        # Of choices, texts and calls any may go on later: what went out may still be how a match begins.
        channel.gone, channel.since_ns = channel.acting.held, None
        return _said_by(index, last, out)

    def _go(self, name: Name, spelling: Spelling, text: str, now_ns: int) -> str:
        """Pass a piece of one text through the stages."""
        if self._plan.waits:
            self._said.setdefault(name, []).append(text)
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = _Channel(self._streams, spelling)
        if channel.watching is not None:
            channel.watching.take(text)
        if channel.acting is None:
            return text
        text = channel.acting.take(text)
        if channel.gone:
            text = self._unsaid(channel, channel.acting, text)
        self._note(channel, now_ns, channel.acting)
        return text

    def _note(self, channel: _Channel, now_ns: int, acting: StreamScreen | None = None) -> None:
        acting = acting or channel.acting
        assert acting is not None
        if channel.since_ns is not None:
            self.held_ns = max(self.held_ns, now_ns - channel.since_ns)
        channel.since_ns = now_ns if acting.is_holding and channel.since_ns is None else channel.since_ns
        if not acting.is_holding:
            channel.since_ns = None
        if acting.blocked is not None and self._blocked is None:
            self._blocked = acting.blocked

    def _take_calls(self, index: int, pieces: bytes, now_ns: int) -> list[Delta]:
        try:
            calls = _calls.decode(pieces)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise UpstreamBroken("the target sent tool calls that cannot be read") from error
        passed: list[Delta] = []
        for place, call in enumerate(calls):
            at = call.get("index")
            number = at if isinstance(at, int) else place
            passed += self._turn_to(index, str(number), now_ns)
            is_empty = False
            for kind, field in _PARTS:
                part = call.get(kind)
                given = part.get(field) if isinstance(part, dict) else None
                if isinstance(part, dict) and given is not None:
                    written = given if isinstance(given, str) else _encode(given).decode()
                    name, spelling = (str(number), IN_JSON) if kind == "function" else (f"{number} {kind}", AS_IS)
                    text = self._go((index, name), spelling, written, now_ns)
                    call = {**call, "index": number, kind: {**part, field: text}}
                    is_empty = not text and not call.get("id") and not part.get("name")
            if is_empty:
                continue
            passed.append(Delta(0, index=index, tool_calls=_encode([call])))
        return passed

    async def end(self, now_ns: int) -> list[Delta]:
        """Run the stages that inspect complete texts. Return all text that was held back."""
        passed = self.rest(None, now_ns)
        if self._plan.holds_all:
            passed = [*self._kept, *passed]
            self._kept = []
        if self._plan.waits and not self._is_stopped():
            await self._look(["".join(pieces) for pieces in self._said.values()])
        return [] if self._plan.holds_all and self._is_stopped() else passed

    async def _look(self, texts: list[str]) -> None:
        """Inspect complete texts. They can still be blocked, but not redacted."""
        shown = [Shown(plain_text(text), _ROLE) for text in texts]
        screening = self._plan.whole.check(shown)
        self._late += screening.verdicts
        acting = (verdict for verdict in screening.verdicts if verdict.action != "flag" and not verdict.is_dry_run)
        self._blocked = next(acting, None)
        for stage in self._plan.awaited:
            if self._is_stopped():
                return
            found = list(await stage.detector.look(shown, self._about))
            if found:
                verdict = stage.verdict(found)
                self._late.append(verdict)
                self._blocked = verdict if stage.acts and verdict.action != "flag" else None

    def passes_whole(self, body: bytes) -> bool:
        """Return whether it is certain that no stage finds anything in a target's complete answer, so that it can be
        sent unchanged.
        """
        return self._plan.passes_whole(body)

    async def judge_body(self, body: bytes) -> bytes:
        """Inspect a target's complete answer; return the body to send."""
        try:
            answer = _any.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UpstreamBroken("the target sent a reply that cannot be read") from error
        is_changed = False
        choices = answer.get("choices") if isinstance(answer, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            is_changed |= isinstance(choice, dict) and self._judge_choice(choice)
        if self._plan.waits and not self._is_stopped():
            await self._look([text for one in choices or () for text in _texts(one)])
            for choice in choices or () if self._is_stopped() else ():
                is_changed |= _stop(choice)
        return _encode(answer) if is_changed else body

    def _judge_choice(self, choice: dict[str, object]) -> bool:
        """Cut out of a choice what is to be cut; return whether anything was."""
        changed = False
        acting, watching = self._streams.acting, self._streams.watching
        renamed: list[tuple[object, object, str]] = []  # after all values, which are found by the names that they have
        said = ""  # of the answer's text, as far as it was inspected
        for holder, at, text, spelling, is_name in _places(choice):
            is_text = (holder is choice and at == "text") or (holder is choice.get("message") and at == "content")
            said = text if is_text else said
            plain = spelling.plain(text)
            is_acted_on = acting is not None and acting.may_find(plain)
            if not is_acted_on and (watching is None or not watching.may_find(plain)):
                continue
            channel = _Channel(self._streams, spelling)
            self._channels[len(self._channels), "whole"] = channel
            if channel.watching is not None:
                channel.watching.take(text)
                channel.watching.flush()
            if channel.acting is None:
                continue
            out = channel.acting.take(text) + channel.acting.flush()
            if channel.acting.blocked is not None:
                self._blocked = self._blocked or channel.acting.blocked
                return _stop(choice, out if is_text else said)
            if out != text and is_name:
                renamed.append((holder, at, out))
            elif out != text:
                holder[at] = out  # type: ignore[index]  # an object or a list, and what it was found under
                said = out if is_text else said
            changed = changed or out != text
        for holder, at, out in renamed:
            if isinstance(holder, dict) and isinstance(at, str):
                rename(holder, at, out)
        if changed and choice.get("logprobs") is not None:
            choice["logprobs"] = None
        return changed


def _said_by(index: int, name: str, text: str) -> list[Delta]:
    if not text:
        return []
    if name == _THOUGHT:
        return [Delta(0, reasoning=text, index=index)]
    if name == _TEXT:
        return [Delta(0, text, index=index)]
    if name == _REFUSAL:
        return [Delta(0, refusal=text, index=index)]
    number, _, kind = name.partition(" ")
    call = {"index": int(number), "custom": {"input": text}} if kind else _arguments_of(int(number), text)
    return [Delta(0, index=index, tool_calls=_encode([call]))]


def _arguments_of(number: int, text: str) -> dict[str, object]:
    return {"index": number, "function": {"arguments": text}}


def _stop(choice: dict[str, object], said: str = "") -> bool:
    """Leave nothing of a choice but its end and the text before the match, as in a stream."""
    message = choice.get("message")
    if isinstance(message, dict):
        choice["message"] = {"role": message.get("role", "assistant"), "content": said, "refusal": None}
    if "text" in choice:
        choice["text"] = said
    choice["finish_reason"] = "content_filter"
    choice.pop("logprobs", None)
    return True


_NO_WORDS: Final = frozenset(("id", "type", "role", "finish_reason", "stop_reason", "data", "signature"))


def _places(value: object, *, is_tools: bool = False) -> Iterator[tuple[object, object, str, Spelling, bool]]:
    """Find texts in a JSON value, with their containers, and whether a text is a name.

    `is_tools`: the value is a tool's arguments. There names and numbers are inspected as well: in a stream they are
    text.
    """
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for at, one in list(pairs):
        if is_tools and isinstance(at, str) and at:
            yield value, at, at, AS_IS, True
        if isinstance(one, str):
            if one and (is_tools or at not in _NO_WORDS):
                yield value, at, one, IN_JSON if at == "arguments" else AS_IS, False
        elif is_tools and type(one) is int:
            yield value, at, str(one), AS_IS, False
        elif at != "logprobs":
            yield from _places(one, is_tools=is_tools or (isinstance(one, dict) and at in TOOL_OBJECTS))


def _texts(value: object) -> Iterator[str]:
    for _, _, text, _, is_name in _places(value):
        if not is_name:
            yield text


def _joined(deltas: list[Delta]) -> list[Delta]:
    """Join an end with the text before it, as targets send them."""
    if len(deltas) < 2:
        return deltas
    last, before = deltas[-1], deltas[-2]
    is_text = before.text and not (before.tool_calls or before.reasoning or before.logprobs or before.thinking_blocks)
    if last.finish_reason is None or not is_text or before.index != last.index:
        return deltas
    return [*deltas[:-2], msgspec.structs.replace(last, text=before.text)]
