"""Watches the host's GPUs: latest samples, other processes that compute there, lost devices.

While another process computes on a GPU, a step's measured time is not only the engine's: it gets confidence 0.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import msgspec

from backends.engine.base import EngineEvent, Facts
from backends.engine.engine_thread import Output
from backends.engine.placement import DeviceRoom
from backends.gpu.base import DeviceFault, DeviceIdentity, DeviceSample, Round
from backends.gpu.dcgm import DcgmOverlay, fetch_page
from backends.gpu.facts import device_facts
from backends.gpu.readers import open_readers, visible
from backends.gpu.sampler import GpuSampler
from contracts.engine.wire import Embedded, Finished
from contracts.errors import ConfigurationError
from contracts.recording.records import StepRecord

_log = logging.getLogger(__name__)

_NOT_TRUSTED: Final = 0.0
_CUDA: Final = re.compile(r"cuda(?::(\d+))?")  # torch's names of visible GPUs
_ALONE_LOOKS: Final = 60  # samples without other processes until the GPU counts as exclusive again

Tell = Callable[[DeviceIdentity, DeviceSample, int | None], None]  # GPU, sample, last fault since the previous one
Lost = Callable[[str, list[str]], None]  # the reason, and the affected models


class DeviceWatch:
    """The latest GPU samples, on the event loop; none without a sampler. `on_lost` is called for a lost GPU."""

    def __init__(self, on_lost: Lost, tell: Tell = lambda identity, sample, xid: None) -> None:
        self._on_lost = on_lost
        self._tell = tell
        self._sampler: GpuSampler | None = None
        self._devices: dict[str, DeviceIdentity] = {}
        self._samples: dict[str, DeviceSample] = {}
        self._lost: set[str] = set()
        self._devices_of: dict[str, list[str]] = {}  # GPUs that each model has computed on, from its records
        self._doubtful: set[bytes] = set()  # requests that were in a step while the GPU was shared
        self._told: bool | None = False  # the last logged `is_shared`
        self._alone_looks = 0  # samples since another process was last seen computing
        self.faults = 0

    def start(self, sampler: GpuSampler, devices: Iterable[DeviceIdentity]) -> None:
        """Start sampling the GPUs that this host may use."""
        self._devices = {one.uuid: one for one in devices}
        self._sampler = sampler

    def stop(self) -> None:
        """Stop the sampler."""
        if self._sampler is not None:
            self._sampler.stop()

    async def refresh(self) -> None:
        """Take a sample now, off the event loop, as free memory may have changed within the last second."""
        if self._sampler is not None:
            self.take(await asyncio.to_thread(self._sampler.take_round))

    def take(self, found: Round) -> None:
        """Record a sample of each GPU."""
        mine = [one for one in found.samples if one.uuid in self._devices]
        self._samples.update({one.uuid: one for one in mine})
        for fault in found.faults:
            self._take_fault(fault)
        xids = {fault.uuid: fault.xid for fault in found.faults}
        for sample in mine:
            self._tell(self._devices[sample.uuid], sample, xids.get(sample.uuid))
        self._tell_sharing(self.is_shared)

    @property
    def is_shared(self) -> bool | None:
        """Return whether another process computed on one of our GPUs in the last second; `None` if unknown."""
        states = [one.is_shared for one in self._samples.values()]
        if any(states):
            return True
        return None if None in states else False

    def rooms(self) -> list[DeviceRoom]:
        """Return the memory of usable GPUs, as far as it is known."""
        return [
            DeviceRoom(uuid, one.memory_total_bytes, one.memory_free_bytes, self._devices[uuid].parent is not None)
            for uuid, one in self._samples.items()
            if uuid not in self._lost and one.memory_total_bytes is not None and one.memory_free_bytes is not None
        ]

    def devices_of(self, model: str) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs a model has computed on; empty if none yet."""
        mine = list(self._devices)
        found = []
        for name in self._devices_of.get(model, ()):
            number = _CUDA.fullmatch(name)
            place = int(number[1] or 0) if number else -1
            if name in self._devices:
                found.append(name)
            elif 0 <= place < len(mine):
                found.append(mine[place])
        return tuple(found)

    def held_bytes(self) -> int | None:
        """Return the GPU memory used by our processes on the GPU with the most; `None` if the driver does not report
        it.
        """
        most = None
        for sample in self._samples.values():
            mine = [one.memory_bytes for one in sample.processes or () if one.is_ours]
            if sample.processes is None or any(one is None for one in mine):
                return None
            most = max(most or 0, sum(one for one in mine if one is not None))
        return most

    def facts(self) -> Facts:
        """Return every GPU's latest values, and the cost of sampling."""
        facts: Facts = {}
        for uuid, sample in self._samples.items():
            facts |= device_facts(self._devices[uuid], sample)
            facts[f"gpu.{uuid}.is_lost"] = uuid in self._lost
        if self._sampler is not None:
            cost = self._sampler.cost
            facts["gpu_faults"] = self.faults
            facts["gpu_looks"] = cost.rounds
            facts["gpu_looks_cpu_seconds"] = cost.cpu_seconds
        return facts

    def marked(self, output: Output) -> Output:
        """Return an engine's output, with confidence 0 for measurements while the GPU was shared."""
        is_shared = self.is_shared is True
        for record in output.steps:
            if _is_on_gpu(record):
                if self._devices_of.get(record.model) != record.devices:
                    self._devices_of[record.model] = record.devices
                if is_shared:
                    self._doubtful.update(record.request_ids)
        if not is_shared and not self._doubtful:
            return output
        steps = [
            msgspec.structs.replace(one, confidence=_NOT_TRUSTED) if is_shared and _is_on_gpu(one) else one
            for one in output.steps
        ]
        return replace(output, steps=steps, events=[self._marked_event(one) for one in output.events])

    def _marked_event(self, event: EngineEvent) -> EngineEvent:
        if not isinstance(event, Finished | Embedded) or event.gpu is None or event.request_id not in self._doubtful:
            return event
        self._doubtful.discard(event.request_id)
        gpu = msgspec.structs.replace(event.gpu, confidence=_NOT_TRUSTED)
        return msgspec.structs.replace(event, gpu=gpu)

    def _take_fault(self, fault: DeviceFault) -> None:
        mine = {fault.uuid} & self._devices.keys() or {
            uuid for uuid, one in self._devices.items() if one.parent == fault.uuid
        }
        if not mine:
            return
        self.faults += 1
        _log.error("GPU fault gpu=%s xid=%s scope=%s meaning=%s", fault.uuid, fault.xid, fault.scope, fault.meaning)
        if fault.scope == "device" and not mine <= self._lost:
            self._lost |= mine
            models = [model for model in self._devices_of if not mine.isdisjoint(self.devices_of(model))]
            self._on_lost(fault.text, models)

    def _tell_sharing(self, is_shared: bool | None) -> None:
        """Log when another process starts or stops computing here."""
        self._alone_looks = self._alone_looks + 1 if is_shared is False else 0
        if is_shared == self._told or (is_shared is False and self._told and self._alone_looks < _ALONE_LOOKS):
            return
        self._told = is_shared
        if is_shared:
            others = [
                f"{uuid}: " + ", ".join(str(one.pid) for one in sample.processes or () if not one.is_ours)
                for uuid, sample in self._samples.items()
                if sample.is_shared
            ]
            _log.warning(
                "another process computes on the GPU; GPU times are not trusted while it does processes=%s",
                "; ".join(others),
            )
        elif is_shared is None:
            _log.info("cannot detect other processes on the GPU: they are in another namespace")
        else:
            _log.info("no other process uses the GPU")


def _is_on_gpu(record: StepRecord) -> bool:
    return bool(record.devices) and record.devices != ["cpu"]


def start_watch(watch: DeviceWatch, dcgm_url: str = "") -> None:
    """Open available drivers and start sampling once a second. Do nothing on a machine without a GPU."""
    loop = asyncio.get_running_loop()
    readers, missing = open_readers()
    if not any(reader.devices() for reader in readers):
        _log.info("no GPU is watched reason=%s", "; ".join(missing) or "there is none")
        for reader in readers:
            reader.close()
        return
    if dcgm_url:
        readers = [DcgmOverlay(reader, fetch_page(dcgm_url)) for reader in readers]

    def on_round(found: Round) -> None:
        try:
            loop.call_soon_threadsafe(watch.take, found)
        except RuntimeError:
            _log.debug("event loop has closed before the GPUs' watch")

    try:
        mine = visible(one for reader in readers for one in reader.devices())
    except ConfigurationError as error:  # an engine that needs a GPU fails with the same message
        _log.warning("no GPU is watched reason=%s", error.message)
        mine = []
    for reader in readers:
        reader.keep({one.uuid for one in mine})
    sampler = GpuSampler(readers, on_round)
    watch.start(sampler, mine)
    if mine:
        sampler.start()
