"""A model's tokenizer and chat template, as its host sent them: messages become text, text becomes token ids."""

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
_MOST_BY_WORDS: Final = 8192  # characters; of more the library lets the interpreter go on meanwhile, words would not
# The library needs some 200 bytes of memory per byte of text: longer texts are encoded piece by piece.
PIECE_CHARACTERS: Final = 64 * 1024
# A piece without a place to cut is encoded whole up to here. A longer one is counted first, cut anywhere, which may
# find more tokens than it has: by far less than the slack, as a cut changes only the tokens around it.
_MOST_UNCUT: Final = 4 * PIECE_CHARACTERS
_SLACK: Final = 1.125
_MORE_SLACK: Final = 64  # tokens
_MOST_TOKENS: Final = 1_000_000  # of all texts of one request: some 40 MB as numbers
# Composing (NFC) makes of the bytes of an alpha with three marks, or of three Hangul letters, a third and more: fewer
# than four bytes become one.
_MOST_COMPOSED: Final = 4


class PromptFormat:
    """Renders and encodes for one model. Building it parses the whole vocabulary, which may take a second: do it in a
    thread. Raises ConfigurationError if the bytes are not what their hash says, or cannot be read.
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
        self.token_bytes = 0 if self._words is None else self._longest_token()
        self._special_tokens = dict(special_tokens)
        self._template, self._variables = _compile(template)

    def takes(self, variable: str) -> bool:
        """Return whether the template reads a variable, such as `tools`."""
        return variable in self._variables

    def render(self, messages: Sequence[Mapping[str, object]], **more: object) -> str:
        """Render a chat up to where the assistant's answer begins.

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

    def encode_within(self, text: str, most: int) -> list[int] | None:
        """Encode a rendered prompt as `encode` does; `None` if it has more than `most` tokens.

        Such a prompt is refused by its length if its tokens cannot be that long; otherwise encoding stops there.
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
        """Return whether a text is certain to have more than `most` tokens. Encodes about as many at most."""
        if len(text) <= PIECE_CHARACTERS:
            return False
        return self._is_longer(text, most) or self._counts_more(text, most)

    def _is_longer(self, text: str, most: int) -> bool:
        """Return whether a text has more characters, of a byte or more each, than `most` tokens can hold."""
        return self.token_bytes > 0 and len(text) > most * self.token_bytes

    def _counts_more(self, text: str, most: int) -> bool:
        """Return whether a text, cut anywhere, has more tokens than `most` and the slack for the cuts."""
        count = 0
        for start in range(0, len(text), PIECE_CHARACTERS):
            count += self._count(text[start : start + PIECE_CHARACTERS])
            if count > most * _SLACK + _MORE_SLACK:
                return True
        return False

    def _beginning(self, text: str, most: int) -> str:
        """Return as much of a text as has its first `most` tokens."""
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
        """Cut a text where its tokens are the same as uncut: at spaces, if the tokenizer keeps words apart."""
        start = 0
        while self._words is not None and len(text) - start > PIECE_CHARACTERS:
            place = _next_cut(text, start + PIECE_CHARACTERS)
            yield text[start:place]
            start = place
        yield text[start:]

    def _longest_token(self) -> int:
        """Return the maximum length of a token in bytes. A character of the vocabulary is one byte of text."""
        longest = max(map(len, self._tokenizer.get_vocab(with_added_tokens=False)), default=0)
        added = [len(one.content.encode()) for one in self._tokenizer.get_added_tokens_decoder().values()]
        composes = self._tokenizer.normalizer is not None
        return max(longest * (_MOST_COMPOSED if composes else 1), *added, 1)

    def encode_inputs(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts for embedding, each with the special tokens the model frames it with.

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
        """Encode texts as `encode_inputs` does, each cut to a number of tokens before it is framed; `None`: whole."""
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
    """Return how many tokens there are with those just encoded. Raises InvalidRequest on more than a million."""
    count += sum(map(len, encoded))
    if count > _MOST_TOKENS:
        raise InvalidRequest(
            f"the texts have more than {_MOST_TOKENS} tokens together; send fewer of them in one request",
            code="context_length_exceeded",
        )
    return count


def _in_batches(texts: Sequence[TextT], size_of: Callable[[TextT], int]) -> Iterator[list[TextT]]:
    """Yield texts in their order, as many at a time as have about the length of a piece."""
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
    """Return the first place at or after `start` where a text can be cut: before a space that begins a new piece."""
    while start < len(text):  # step by step: one search of a long text would hold up the interpreter
        end = start + PIECE_CHARACTERS
        space = AT_SPACES.search(text, start, end)
        if space is not None:
            return space.start()
        start = end
    return len(text)


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
