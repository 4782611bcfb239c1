"""The once-a-second look, and its facts on the wire."""

import threading
from collections.abc import Collection

from backends.gpu.base import DeviceFault, DeviceIdentity, DeviceSample, Round
from backends.gpu.facts import device_facts, facts_by_device
from backends.gpu.sampler import GpuSampler


class ScriptedReader:
    """Returns rounds from a list, the last one for ever; an exception in it is raised."""

    def __init__(self, uuid: str, *rounds: Round | Exception) -> None:
        self.identity = DeviceIdentity(uuid, 0, "a GPU")
        self._rounds = list(rounds)
        self.looks = 0
        self.is_closed = False

    def devices(self) -> tuple[DeviceIdentity, ...]:
        return (self.identity,)

    def keep(self, uuids: Collection[str]) -> None:
        raise AssertionError("a sampler looks at what it is given")

    def look(self) -> Round:
        found = self._rounds[min(self.looks, len(self._rounds) - 1)]
        self.looks += 1
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self.is_closed = True


def test_one_round_holds_every_maker_s_gpus() -> None:
    fault = DeviceFault("B", 79, "gone", "device")
    sampler = GpuSampler(
        [
            ScriptedReader("A", Round((DeviceSample("A", 1),))),
            ScriptedReader("B", Round((DeviceSample("B", 1),), (fault,))),
        ],
        lambda found: None,
    )
    found = sampler.take_round()
    assert [one.uuid for one in found.samples] == ["A", "B"]
    assert found.faults == (fault,)
    assert [one.uuid for one in sampler.devices] == ["A", "B"]


def test_a_driver_s_surprise_does_not_end_the_watch() -> None:
    reader = ScriptedReader("A", RuntimeError("surprise"), Round((DeviceSample("A", 2),)))
    came = threading.Event()
    sampler = GpuSampler([reader], lambda found: came.set(), period_seconds=0.001)
    sampler.start()
    assert came.wait(10)
    sampler.stop()
    assert reader.is_closed
    assert sampler.cost.rounds >= 2
    assert sampler.cost.cpu_seconds >= 0


def test_facts_carry_what_is_unknown_as_unknown_and_come_apart_by_device() -> None:
    identity = DeviceIdentity("GPU-1", 3, "NVIDIA H200", driver="580")
    sample = DeviceSample("GPU-1", 5, power_watts=70.5, throttle_reasons=("power_cap", "power_brake"))
    facts = device_facts(identity, sample)
    assert facts["gpu.GPU-1.power_watts"] == 70.5
    assert facts["gpu.GPU-1.sm_activity"] is None
    assert facts["gpu.GPU-1.throttle_reasons"] == "power_cap,power_brake"
    assert facts["gpu.GPU-1.index"] == 3
    assert "gpu.GPU-1.at_ns" not in facts
    apart = facts_by_device({**facts, "requests_taken": 4, "gpu.": 1, "gpu.x": 2, "tiny.running": 0})
    assert set(apart) == {"GPU-1"}
    assert apart["GPU-1"]["power_watts"] == 70.5
