"""Sends GPU readings as records to the gateway that receives the host's step records.

They may be lost, like KV events: the next reading follows within a second. A gap in the numbers shows a loss.
"""

from typing import TYPE_CHECKING

from backends.gpu.base import THROTTLE_BITS, DeviceIdentity, DeviceSample
from contracts.engine.wire import Devices
from contracts.recording.records import DeviceRecord, encode_record

if TYPE_CHECKING:
    from backends.engine.host import EngineHost


class DeviceBook:
    """Numbers and sends GPU readings. Without a receiver a reading is lost, but numbered."""

    def __init__(self, host: "EngineHost") -> None:
        self._host = host
        self._sequence = 0

    def tell(self, identity: DeviceIdentity, sample: DeviceSample, xid: int | None) -> None:
        """Send a GPU reading; `xid` is the last fault since the previous one."""
        self._sequence += 1
        gateway = self._host.subscriber
        if gateway is None or gateway.is_choked or gateway.attach is None or not gateway.attach.wants_devices:
            return
        host = self._host
        record = device_record(
            identity, sample, host=host.engine, sequence=self._sequence, replica=host.settings.replica, xid=xid
        )
        gateway.send(Devices(records=[encode_record(record)]))
        gateway.flush()


def device_record(
    identity: DeviceIdentity,
    sample: DeviceSample,
    *,
    host: str,
    sequence: int,
    replica: str = "",
    xid: int | None = None,
) -> DeviceRecord:
    """Return a reading as a record; values that could not be measured are `None`."""
    reasons = sample.throttle_reasons
    return DeviceRecord(
        host=host,
        sequence=sequence,
        at_ns=sample.at_ns,
        device=identity.uuid,
        device_model=identity.name,
        device_index=identity.index,
        parent=identity.parent or "",
        vendor=identity.vendor,
        replica=replica,
        memory_total_bytes=sample.memory_total_bytes,
        memory_used_bytes=sample.memory_used_bytes,
        power_watts=sample.power_watts,
        energy_joules=sample.energy_joules,
        temperature_celsius=sample.temperature_celsius,
        memory_temperature_celsius=sample.memory_temperature_celsius,
        sm_clock_mhz=sample.sm_clock_mhz,
        memory_clock_mhz=sample.memory_clock_mhz,
        throttle_bits=None if reasons is None else sum(THROTTLE_BITS[one] for one in reasons),
        ecc_corrected=sample.ecc_corrected,
        ecc_uncorrected=sample.ecc_uncorrected,
        kernel_activity=sample.kernel_activity,
        sm_activity=sample.sm_activity,
        sm_occupancy=sample.sm_occupancy,
        tensor_activity=sample.tensor_activity,
        dram_activity=sample.dram_activity,
        other_processes=sample.other_processes,
        is_shared=sample.is_shared,
        xid=xid,
    )
