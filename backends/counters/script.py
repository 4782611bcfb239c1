"""The counting script, built from one file per noun. It is sent once and then called by its digest."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

_PARTS: Final = ("exact", "gateways", "sliding", "open", "places", "escrow", "batch")  # each uses what stands before it


@cache
def batch_script() -> tuple[bytes, str]:
    """Return the script and its digest as Redis knows it."""
    folder = files("backends.counters")
    source = "\n".join(folder.joinpath(f"{part}.lua").read_text() for part in _PARTS).encode()
    return source, hashlib.sha1(source, usedforsecurity=False).hexdigest()
