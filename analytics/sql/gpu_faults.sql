-- Faults that GPUs reported in a range: the highest fault code (NVML's XID), new uncorrected memory errors, and the
-- highest temperature. NULL: the sensor is missing.
SELECT
    device,
    any(host) AS host_name,
    any(device_model) AS model_name,
    max(xid) AS worst_xid,
    max(ecc_uncorrected) - min(ecc_uncorrected) AS new_uncorrected,
    max(temperature_celsius) AS hottest_celsius
FROM gpu_samples
WHERE at >= toDateTime({start:UInt32}, 'UTC')
    AND at < toDateTime64({end:UInt32}, 9, 'UTC')
GROUP BY device
ORDER BY device
