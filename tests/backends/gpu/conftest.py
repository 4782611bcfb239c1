"""After each test, the driver that this machine has, if any."""

from collections.abc import Iterator

import pynvml
import pytest


@pytest.fixture(autouse=True)
def own_driver() -> Iterator[None]:
    yield
    if not isinstance(pynvml.nvmlLib, pynvml.CDLL):
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()
