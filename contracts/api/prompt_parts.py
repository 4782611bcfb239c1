"""Messages of which nothing but their text counts: how checksums of prompts know them."""

from typing import Literal

import msgspec


class PlainMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message that has a role and content, and nothing else."""

    role: str
    content: msgspec.Raw


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A block of a message that is text, and nothing else."""

    type: Literal["text"]
    text: msgspec.Raw
