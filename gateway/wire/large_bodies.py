"""Large bodies: parsed in a thread, after counting their values, so that no other request waits for them.

Parsing holds the interpreter lock until it ends. Its duration depends on the number of JSON values rather than on the
bytes: a body of images has few values, a million tiny messages would delay every other request by a second.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from backends.llm.encoding_room import LARGE_BODY_BYTES, EncodingRoom
from contracts.errors import BodyTooComplex

ITEMS_PER_FIELD: Final = 10  # a number in a list of token ids takes a tenth of what an object's field takes
_FORM: Final = "multipart/"
_WINDOW: Final = 64 * 1024  # bytes that are looked at in one go: others have their turn after each

RequestT = TypeVar("RequestT")


class LargeBodies:
    """Reads request bodies of any size."""

    def __init__(self, room: EncodingRoom, most_fields: int) -> None:
        self._room = room
        self._most_fields = most_fields

    async def read(
        self, read: Callable[[str, bytes], RequestT], content_type: str, body: bytes, tenant: str
    ) -> RequestT:
        """Read a body with `read`. Raises what that raises, BodyTooComplex, LimitExceeded or Unavailable."""
        if len(body) <= LARGE_BODY_BYTES:
            return read(content_type, body)

        def work() -> RequestT:
            if not content_type.startswith(_FORM):  # a form's file is no JSON, and is not parsed
                check_body(body, self._most_fields)
            return read(content_type, body)

        return await self._room.run(tenant, len(body), lambda: asyncio.to_thread(work))


def check_body(body: bytes, most_fields: int) -> None:
    """Refuse a body with more objects, lists and fields than `most_fields`, or ten times as many items of lists.

    Raise BodyTooComplex. Contents of strings do not count.
    """
    most_items = most_fields * ITEMS_PER_FIELD
    if _is_within(body, most_fields, most_items):
        return
    fields = items = 0
    is_in_string = False
    carried = b""
    for start in range(0, len(body), _WINDOW):
        piece = carried + body[start : start + _WINDOW]
        kept = len(piece) - (len(piece) - len(piece.rstrip(b"\\"))) % 2  # a backslash belongs to what follows it
        piece, carried = piece[:kept], piece[kept:]
        # Without its escapes a text has quotation marks only where its strings begin and end.
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[1::2] if is_in_string else parts[::2])
        is_in_string ^= len(parts) % 2 == 0
        fields += outside.count(b":") + outside.count(b"{") + outside.count(b"[")
        items += outside.count(b",")
        if fields > most_fields or items > most_items:
            what = f"{most_fields} objects, lists and fields" if fields > most_fields else f"{most_items} list items"
            raise BodyTooComplex(
                f"the body of {len(body)} bytes holds more than {what}, which TOLLKEEPER_MAX_BODY_FIELDS sets; send "
                "less in one request"
            )


def _is_within(body: bytes, most_fields: int, most_items: int) -> bool:
    """Return whether a body is within the bounds even if everything that looks like a value is one."""
    fields = items = 0
    for start in range(0, len(body), 1 << 20):
        end = start + (1 << 20)
        fields += body.count(b":", start, end) + body.count(b"{", start, end) + body.count(b"[", start, end)
        items += body.count(b",", start, end)
        if fields > most_fields or items > most_items:
            return False
    return True
