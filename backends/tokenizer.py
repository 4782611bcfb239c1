"""A model's tokenizer and chat template, as its host sent them: messages become text, text becomes token ids."""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from backends.known_words import KnownWords, are_words_apart
from contracts.errors import ConfigurationError, InvalidRequest

_SHOWN_HASH: Final = 12
_DICT_ATTRIBUTES: Final = frozenset(dir(dict))
_MOST_BY_WORDS: Final = 8192  # characters; of more the library lets the interpreter go on meanwhile, words would not


class PromptFormat:
    """Renders and encodes for one model. Building it parses the whole vocabulary, which may take a second: do it in a
    thread. Raises ConfigurationError where the bytes are not what their hash says, or cannot be read."""

    def __init__(
        self,
        tokenizer: bytes,
        template: str,
        special_tokens: Mapping[str, str],
        *,
        tokenizer_hash: str = "",
        template_hash: str = "",
    ) -> None:
        # A batch of one is not worth threads of the library's own; what is long is encoded in one of ours.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        _check_hash("tokenizer", tokenizer, tokenizer_hash)
        _check_hash("chat template", template.encode(), template_hash)
        try:
            self._tokenizer = Tokenizer.from_buffer(tokenizer)
        except Exception as error:  # the library raises bare Exception for every fault of a file
            raise ConfigurationError(f"the tokenizer cannot be read: {str(error)[:200]}") from error
        # What a file says of cutting and filling up is for training: a prompt is never cut without a word.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._words = KnownWords(self._tokenizer) if are_words_apart(tokenizer) else None
        self._special_tokens = dict(special_tokens)
        self._template, self._variables = _compile(template)

    @property
    def has_template(self) -> bool:
        """Say whether there is a template to render chats with."""
        return self._template is not None

    def takes(self, variable: str) -> bool:
        """Say whether the template reads a variable, such as `tools`."""
        return variable in self._variables

    def render(self, messages: Sequence[Mapping[str, object]], **more: object) -> str:
        """Render a chat up to where the assistant's answer begins.

        Raises InvalidRequest where the template refuses the messages or there is none.
        """
        if self._template is None:
            raise InvalidRequest("the model has no chat template, so it takes no chats", param="messages")
        try:
            return self._template.render(
                {**more, **self._special_tokens, "messages": messages, "add_generation_prompt": True}
            )
        except _Refusal as error:
            raise InvalidRequest(
                f"the model's chat template refuses the messages: {error}", param="messages"
            ) from error
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            # Without the error's text, which may quote the prompt.
            raise InvalidRequest(
                f"the messages cannot be rendered with the model's chat template ({type(error).__name__})",
                param="messages",
            ) from error

    def encode(self, text: str) -> list[int]:
        """Encode a rendered prompt, which has its special tokens already. May be called in a thread: where the text is
        long, the interpreter is free meanwhile."""
        if self._words is not None and len(text) <= _MOST_BY_WORDS:
            return self._words.encode(text)
        # Of a batch the library works out no offsets, which nobody asks for: a quarter of the time.
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def encode_inputs(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts for embedding, each with the special tokens the model frames it with."""
        return [encoded.ids for encoded in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=True)]

    def encode_cut(self, texts: Sequence[tuple[str, int | None]]) -> list[list[int]]:
        """Encode texts as `encode_inputs` does, each cut to a number of tokens before it is framed; `None`: whole."""
        found: list[list[int]] = []
        encoded = self._tokenizer.encode_batch([text for text, _ in texts], add_special_tokens=False)
        for one, (_, most) in zip(encoded, texts, strict=True):
            if most is not None and len(one.ids) > most:
                one.truncate(most)
            found.append(self._tokenizer.post_process(one).ids)
        return found


class _Refusal(Exception):
    """A template's own `raise_exception`."""


class _ChatEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox that looks into messages at once: most of what templates ask for are names in them."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        # As in the class above, without finding out by an exception that a dict has no such attribute.
        if type(obj) is dict and attribute not in _DICT_ATTRIBUTES:
            if attribute in obj:
                return obj[attribute]
            return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


def _check_hash(what: str, content: bytes, stated: str) -> None:
    found = sha256(content).hexdigest()
    if stated and stated != found:
        raise ConfigurationError(
            f"the {what} that came has the hash {found[:_SHOWN_HASH]}, its host states {stated[:_SHOWN_HASH]}: "
            "refused, as its token ids could mean something else there; restart the engine host"
        )


def _compile(template: str) -> tuple[jinja2.Template | None, frozenset[str]]:
    if not template:
        return None, frozenset()
    # The settings and functions that templates are written for (transformers, utils/chat_template_utils.py).
    environment = _ChatEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        variables = jinja2.meta.find_undeclared_variables(environment.parse(template))
        compiled = environment.from_string(template)
    except jinja2.TemplateError as error:
        raise ConfigurationError(f"the chat template cannot be read: {error}") from error
    compiled.globals = dict(compiled.globals)  # copied for each chat, which takes a chain of maps much longer
    return compiled, frozenset(variables)


def _to_json(value: object, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> str:
    raise _Refusal(str(message)[:200])
