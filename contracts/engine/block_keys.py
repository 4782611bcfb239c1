"""Keys of KV blocks: a chained digest over token ids, so that equal prefixes of one tenant have equal keys.

The first block's key includes the tenant's salt, the adapter and the images' digests; each later one is chained on its
parent, so equal keys mean equal content from the first token on. Whole keys never leave the process that computes them;
KV events and routers use their low 64 bits.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

KEY_BYTES: Final = 16  # wide enough that tenants cannot search for each other's keys
_TOKEN_BYTES: Final = 4


def root_key(salt: str = "", adapter: str = "", images: Sequence[bytes] = ()) -> bytes:
    """Return the parent key of a first block. Every part is prefixed with its length, so that different lists cannot
    collide.
    """
    digest = blake2b(digest_size=KEY_BYTES)
    for part in (salt.encode(), adapter.encode(), *images):
        digest.update(len(part).to_bytes(4, "little"))
        digest.update(part)
    return digest.digest()


def public_hash(key: bytes) -> int:
    """Return the unsigned 64-bit hash that identifies a block in events and routers."""
    return int.from_bytes(key[:8], "little")


def chain(parent: bytes, packed: bytes, block_bytes: int) -> list[bytes]:
    """Return the keys of the full blocks in `packed`, in order, starting from `parent`.

    `packed` are little-endian 32-bit token ids if the keys must equal an engine's; any other bytes give independent
    keys.
    """
    keys = []
    for start in range(0, len(packed) - block_bytes + 1, block_bytes):
        parent = blake2b(packed[start : start + block_bytes], digest_size=KEY_BYTES, key=parent).digest()
        keys.append(parent)
    return keys


def block_hashes(token_ids: Sequence[int], block_tokens: int, salt: str = "", adapter: str = "") -> list[int]:
    """Return the public hashes of a prompt's full blocks: about 1 us per block. Empty if a token id is invalid."""
    try:
        ids = array("I", token_ids)
    except (OverflowError, TypeError):
        return []
    assert ids.itemsize == _TOKEN_BYTES
    keys = chain(root_key(salt, adapter), ids.tobytes(), _TOKEN_BYTES * block_tokens)
    return [int.from_bytes(key[:8], "little") for key in keys]
