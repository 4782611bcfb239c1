"""The driver of the machine the tests run on, where it has a GPU."""

import time

import pytest

from backends.gpu.base import GpuReader
from backends.gpu.readers import open_readers
from backends.gpu.sampler import GpuSampler

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def readers() -> list[GpuReader]:
    found = [reader for reader in open_readers()[0] if reader.devices()]
    if not found:
        pytest.skip("no GPU")
    return found


def test_every_gpu_tells_its_memory_and_power(readers: list[GpuReader]) -> None:
    for reader in readers:
        for sample in reader.look().samples:
            assert sample.memory_total_bytes and sample.memory_free_bytes is not None
            assert 0 <= sample.memory_free_bytes <= sample.memory_total_bytes
            assert sample.power_watts is None or sample.power_watts > 0


def test_looking_once_a_second_costs_less_than_half_a_percent_of_a_core(readers: list[GpuReader]) -> None:
    sampler = GpuSampler(readers, lambda found: None)
    sampler.take_round()
    looks = 10
    began = time.thread_time()
    for _ in range(looks):
        time.sleep(1.0)  # the driver keeps answers for less than a second: asked faster, it is cheaper
        sampler.take_round()
    assert (time.thread_time() - began) / looks < 0.005
