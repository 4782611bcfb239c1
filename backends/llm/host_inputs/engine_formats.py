"""Prompt formats by the hashes of tokenizer and template. Each is built once, in a thread, when an engine host
announces a model with these hashes.
"""

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from contracts.engine.wire import ModelHello
from contracts.errors import ConfigurationError, EngineUnavailable

if TYPE_CHECKING:
    from backends.tokenization.tokenizer import PromptFormat

FormatKey = tuple[str, str]

_KEPT: Final = 16  # more than the models served at once; a vocabulary takes tens of megabytes


def format_key(model: ModelHello) -> FormatKey:
    """Return the key of a model's prompt format."""
    tokenizer = model.tokenizer_hash or sha256(model.tokenizer).hexdigest()
    return tokenizer, model.template_hash or sha256(model.chat_template.encode()).hexdigest()


class EngineFormats:
    """Caches the most recently used formats."""

    def __init__(self) -> None:
        self._tasks: dict[FormatKey, asyncio.Task[PromptFormat]] = {}

    def prepare(self, model: ModelHello) -> "asyncio.Task[PromptFormat]":
        """Start to build a model's format, unless it exists; return the task."""
        key = format_key(model)
        task = self._tasks.pop(key, None)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.get_running_loop().create_task(asyncio.to_thread(_build, model), name="prompt format")
            task.add_done_callback(_note_failure)
        self._tasks[key] = task
        while len(self._tasks) > _KEPT:
            del self._tasks[next(iter(self._tasks))]
        return task

    async def get(self, model: ModelHello) -> "PromptFormat":
        """Return a model's format. Raises EngineUnavailable with the reason if the host's tokenizer or template is
        unusable.
        """
        task = self._tasks.get(format_key(model)) or self.prepare(model)
        if not task.done():
            await asyncio.wait((task,))  # a cancelled caller must not cancel it for others
        try:
            return task.result()
        except ConfigurationError as error:
            raise EngineUnavailable(f"the engine's model {model.id!r} cannot be used: {error.message}") from error


def _build(model: ModelHello) -> "PromptFormat":
    try:
        from backends.tokenization.tokenizer import PromptFormat  # its libraries load only where an engine host is used
    except ImportError as error:
        raise ConfigurationError(
            f"the Python package {error.name!r} is missing in the gateway's environment; install tokenizers and Jinja2"
        ) from error
    return PromptFormat(
        model.tokenizer,
        model.chat_template,
        model.special_tokens,
        tokenizer_hash=model.tokenizer_hash,
        template_hash=model.template_hash,
    )


def _note_failure(task: "asyncio.Task[PromptFormat]") -> None:
    if not task.cancelled():
        task.exception()  # marks it as retrieved; callers of `get` receive it
