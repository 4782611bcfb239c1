"""Files that applications store at the gateway."""

from typing import Final, Literal

import msgspec

from contracts.access.owner import Owner

FilePurpose = Literal["batch", "batch_output"]

PIECE_BYTES: Final = 1 << 20  # contents are stored and read in pieces of this size; the last one is shorter


class StoredFile(msgspec.Struct, frozen=True):
    """A file without its content. Times are Unix seconds; `expires_unix` is `None` if it never expires."""

    id: str
    owner: Owner
    filename: str
    purpose: FilePurpose
    size_bytes: int
    created_unix: int
    expires_unix: int | None = None


class FileBounds(msgspec.Struct, frozen=True):
    """How much one tenant may store in files."""

    max_bytes: int
    max_count: int
