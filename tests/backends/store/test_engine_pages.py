"""What was read of a mapped file and is not needed is given back, and nothing else changes."""

import sys
from pathlib import Path

import pyarrow
import pyarrow.compute
import pytest

from backends.store.engine_pages import give_back_pages_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a process's mappings")


def library() -> str:
    """Return the file of a large library that this process has mapped."""
    mapped = {Path(line.split()[-1]).name for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    return next(name for name in mapped if name.startswith("libarrow.so"))


def test_pages_are_given_back_and_read_again_where_they_are_needed() -> None:
    numbers = pyarrow.array(range(1000))
    assert give_back_pages_of(library()) > 0
    assert pyarrow.compute.sum(numbers).as_py() == 499_500
    assert give_back_pages_of(library()) > 0


def test_a_file_that_is_not_mapped_has_nothing_to_give() -> None:
    assert give_back_pages_of("no-such-library.so") == 0
