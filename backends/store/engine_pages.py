"""Releases pages of the engine's library file that were needed only at the start.

The library has 555 MB, of which the linker reads some 200 MB for relocation and initialisation; a store under load uses
half of that. Released pages that are needed again are read again, usually from the page cache.
"""

import ctypes
import re
from pathlib import Path
from typing import Final

_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ +(/.*)\n")
_DONT_NEED: Final = 4  # MADV_DONTNEED, include/uapi/asm-generic/mman-common.h
_MEMORY: Final = Path("/proc/self/smaps")  # only on Linux


def give_back_pages_of(file_name: str) -> int:
    """Release this process's unmodified pages of a mapped file; return their size in KiB.

    Has no effect except on memory: in read-only mappings without private pages, every page equals the file's.
    """
    try:
        lines = _MEMORY.read_text().splitlines(keepends=True)
    except OSError:
        return 0
    given_back, start, length, resident = 0, 0, 0, 0
    libc = ctypes.CDLL(None)
    for line in lines:
        mapped = _MAPPING.fullmatch(line)
        if mapped is not None:
            is_ours = Path(mapped[4]).name == file_name and "w" not in mapped[3]
            start, end = int(mapped[1], 16), int(mapped[2], 16)
            length = end - start if is_ours else 0
        elif line.startswith("Rss:"):
            resident = int(line.split()[1])
        elif line.startswith("Anonymous:") and length:
            has_own_pages = int(line.split()[1]) > 0
            if (
                resident
                and not has_own_pages
                and libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _DONT_NEED) == 0
            ):
                given_back += resident
            length = 0
        elif "-" in line.split(" ", 1)[0]:
            length = 0  # a mapping without a file
    return given_back
