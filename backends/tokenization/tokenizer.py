"""A model's tokenizer and chat template, as its host sent them: renders messages to text, and encodes text to token
ids.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, TypeVar

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from backends.tokenization.known_words import AT_SPACES, KnownWords, are_words_apart
from contracts.errors import ConfigurationError, InvalidRequest

TextT = TypeVar("TextT")

_SHOWN_HASH: Final = 12
_DICT_ATTRIBUTES: Final = frozenset(dir(dict))
_MOST_BY_WORDS: Final = 8192  # characters; longer texts are left to the library, which releases the GIL
# The library needs about 200 bytes of memory per byte of text, so longer texts are encoded in pieces.
PIECE_CHARACTERS: Final = 64 * 1024
# A piece that cannot be split is encoded whole up to this length. A longer one is first split anywhere and counted,
# which may give more tokens than it has: by far less than the slack, because a split affects only the tokens around it.
_MOST_UNCUT: Final = 4 * PIECE_CHARACTERS
_SLACK: Final = 1.125
_MORE_SLACK: Final = 64  # tokens
_MOST_TOKENS: Final = 1_000_000  # of all texts of one request: about 40 MB as numbers
# NFC normalization shortens an alpha with three marks, or three Hangul letters, to about a third of the bytes: always
# by less than a factor of 4.
_MOST_COMPOSED: Final = 4


class PromptFormat:
    """Renders and encodes prompts for one model.

    Construction parses the whole vocabulary, which may take a second, so do it in a thread. Raises ConfigurationError
    if the bytes do not match their hash or cannot be parsed.
    """

    def __init__(
        self,
        tokenizer: bytes,
        template: str,
        special_tokens: Mapping[str, str],
        *,
        tokenizer_hash: str = "",
        template_hash: str = "",
    ) -> None:
        # The library's own threads do not pay off for a batch of one; long texts are encoded in a thread here.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        _check_hash("tokenizer", tokenizer, tokenizer_hash)
        _check_hash("chat template", template.encode(), template_hash)
        try:
            self._tokenizer = Tokenizer.from_buffer(tokenizer)
        except Exception as error:  # the library raises bare Exception for every fault of a file
            raise ConfigurationError(f"the tokenizer cannot be read: {str(error)[:200]}") from error
        # Truncation and padding settings of the file are for training: prompts are never truncated silently.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._words = KnownWords(self._tokenizer) if are_words_apart(tokenizer) else None
        self.token_bytes = 0 if self._words is None else self._longest_token()
        self._special_tokens = dict(special_tokens)
        self._template, self._variables = _compile(template)

    def takes(self, variable: str) -> bool:
        """Return whether the template uses a variable, such as `tools`."""
        return variable in self._variables

    def render(self, messages: Sequence[Mapping[str, object]], **more: object) -> str:
        """Render a chat up to the beginning of the assistant's answer.

        Raises InvalidRequest if the template refuses the messages or there is none.
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
            # Without the error's message, which may quote the prompt.
            raise InvalidRequest(
                f"the messages cannot be rendered with the model's chat template ({type(error).__name__})",
                param="messages",
            ) from error

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a rendered prompt, which has its special tokens already. May be called in a thread:
        for long texts the library releases the GIL.
        """
        if self._words is not None and len(text) <= _MOST_BY_WORDS:
            return self._words.encode(text)
        # The batch function computes no offsets, which takes a quarter of the time.
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def encode_within(self, text: str, most: int) -> list[int] | None:
        """Return the token ids of a rendered prompt as `encode` does; `None` if it has more than `most` tokens.

        A prompt that is too long by its characters is refused without encoding; otherwise encoding stops at the limit.
        """
        if len(text) <= PIECE_CHARACTERS:
            ids = self.encode(text)
            return ids if len(ids) <= most else None
        if self._is_longer(text, most):
            return None
        found: list[int] = []
        for piece in self._pieces(text):
            room = most - len(found)
            if len(piece) > _MOST_UNCUT and self._counts_more(piece, room):
                return None
            ids = self.encode(piece)
            if len(ids) > room:
                return None
            found += ids
        return found

    def is_too_long(self, text: str, most: int) -> bool:
        """Return whether a text certainly has more than `most` tokens. Encodes at most about as many."""
        if len(text) <= PIECE_CHARACTERS:
            return False
        return self._is_longer(text, most) or self._counts_more(text, most)

    def _is_longer(self, text: str, most: int) -> bool:
        """Return whether a text has more characters than the bytes of `most` tokens of maximum length."""
        return self.token_bytes > 0 and len(text) > most * self.token_bytes

    def _counts_more(self, text: str, most: int) -> bool:
        """Return whether a text, split anywhere, has more tokens than `most` plus the slack for the splits."""
        count = 0
        for start in range(0, len(text), PIECE_CHARACTERS):
            count += self._count(text[start : start + PIECE_CHARACTERS])
            if count > most * _SLACK + _MORE_SLACK:
                return True
        return False

    def _beginning(self, text: str, most: int) -> str:
        """Return a beginning of a text that contains its first `most` tokens."""
        if len(text) <= PIECE_CHARACTERS:
            return text
        count = 0
        for start in range(0, len(text), PIECE_CHARACTERS):
            if count > most * _SLACK + _MORE_SLACK:
                return text[:start]
            count += self._count(text[start : start + PIECE_CHARACTERS])
        return text

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])

    def _pieces(self, text: str) -> Iterator[str]:
        """Split a text where its tokens do not change: at spaces, if the tokenizer keeps words apart."""
        start = 0
        while self._words is not None and len(text) - start > PIECE_CHARACTERS:
            place = _next_cut(text, start + PIECE_CHARACTERS)
            yield text[start:place]
            start = place
        yield text[start:]

    def _longest_token(self) -> int:
        """Return the maximum length of a token in bytes. In the vocabulary, a character stands for one byte."""
        longest = max(map(len, self._tokenizer.get_vocab(with_added_tokens=False)), default=0)
        added = [len(one.content.encode()) for one in self._tokenizer.get_added_tokens_decoder().values()]
        composes = self._tokenizer.normalizer is not None
        return max(longest * (_MOST_COMPOSED if composes else 1), *added, 1)

    def encode_inputs(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts for embedding, each with the model's special tokens.

        Raises InvalidRequest if they have more than a million tokens together.
        """
        found: list[list[int]] = []
        count = 0
        for batch in _in_batches(texts, len):
            encoded = [one.ids for one in self._tokenizer.encode_batch_fast(batch, add_special_tokens=True)]
            count = _added_up(count, encoded)
            found += encoded
        return found

    def encode_cut(self, texts: Sequence[tuple[str, int | None]]) -> list[list[int]]:
        """Return the token ids of texts as `encode_inputs` does, each truncated to a number of tokens first; `None`:
        not truncated.
        """
        found: list[list[int]] = []
        count = 0
        for batch in _in_batches(texts, lambda given: len(given[0])):
            shown = [text if most is None else self._beginning(text, most) for text, most in batch]
            encoded = self._tokenizer.encode_batch(shown, add_special_tokens=False)
            for one, (_, most) in zip(encoded, batch, strict=True):
                if most is not None and len(one.ids) > most:
                    one.truncate(most)
                found.append(self._tokenizer.post_process(one).ids)
            count = _added_up(count, found[len(found) - len(batch) :])
        return found


def _added_up(count: int, encoded: Sequence[list[int]]) -> int:
    """Return the number of tokens including those just encoded. Raises InvalidRequest above a million."""
    count += sum(map(len, encoded))
    if count > _MOST_TOKENS:
        raise InvalidRequest(
            f"the texts have more than {_MOST_TOKENS} tokens together; send fewer of them in one request",
            code="context_length_exceeded",
        )
    return count


def _in_batches(texts: Sequence[TextT], size_of: Callable[[TextT], int]) -> Iterator[list[TextT]]:
    """Yield texts in order, in batches of about the length of a piece."""
    batch: list[TextT] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += size_of(text)
        if size > PIECE_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _next_cut(text: str, start: int) -> int:
    """Return the first position from `start` on where a text can be split: before a space that begins a new piece."""
    while start < len(text):  # in steps, because one search of a long text would hold the GIL
        end = start + PIECE_CHARACTERS
        space = AT_SPACES.search(text, start, end)
        if space is not None:
            return space.start()
        start = end
    return len(text)


class _Refusal(Exception):
    """Raised by a template's `raise_exception`."""


class _ChatEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox with a faster look-up of attributes in messages, which templates use most."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        # As in the base class, but without an exception for missing attributes of dicts.
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
    compiled.globals = dict(compiled.globals)  # copied for each chat, which is slow for a ChainMap
    return compiled, frozenset(variables)


def _to_json(value: object, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> str:
    raise _Refusal(str(message)[:200])
