-- GPU sensors over time, in steps of {step} seconds from {origin}. NULL: the sensor is missing or was not read in that
-- step. Samples are stored for 14 days.
SELECT
    intDiv(toUnixTimestamp(toDateTime(at, 'UTC')) - {origin:UInt32}, {step:UInt32}) * {step:UInt32}
        + {origin:UInt32} AS step_start,
    toString(device) AS device_label,
    any(device_model) AS model_label,
    any(replica) AS replica_label,
    count() AS look_count,
    avg(kernel_activity) AS kernel_mean,
    avg(sm_activity) AS sm_mean,
    avg(tensor_activity) AS tensor_mean,
    avg(dram_activity) AS dram_mean,
    avg(power_watts) AS power_mean,
    max(power_watts) AS power_most,
    max(temperature_celsius) AS temperature_most,
    avg(memory_used_bytes) AS memory_mean,
    max(memory_total_bytes) AS memory_total,
    min(sm_clock_mhz) AS clock_least,
    groupBitOr(ifNull(throttle_bits, 0)) AS throttled,
    max(ecc_uncorrected) AS ecc_most,
    max(xid) AS xid_last
FROM gpu_samples
WHERE at >= toDateTime({start:UInt32}, 'UTC')
    AND at < toDateTime64({end:UInt32}, 9, 'UTC')
GROUP BY step_start, device_label
ORDER BY device_label, step_start
