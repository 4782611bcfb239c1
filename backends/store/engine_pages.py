"""Returns pages of the engine's file back to the kernel: those read at the start, and then no more.

The engine is one library of 555 MB. To relocate it, and to set up what it offers, the linker reads some 200 MB; a store
under load uses half of that. What is needed again is read again, from the kernel's cache as a rule.
"""

import ctypes
import re
from pathlib import Path
from typing import Final

_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ +(/.*)\n")
_DONT_NEED: Final = 4  # MADV_DONTNEED, include/uapi/asm-generic/mman-common.h
_MEMORY: Final = Path("/proc/self/smaps")  # Linux alone has it


def give_back_pages_of(file_name: str) -> int:
    """Let go of this process's pages of a mapped file that are as they are on disk; return how many KiB those were.

    Nothing changes but memory: of a mapping that cannot be written and has no page of its own, each page is the file's.
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
