-- What GPUs said of themselves: the last fault (NVML's XID), memory errors that could not be corrected since the
-- stretch began, and how hot they were at the most. NULL is a sensor that is absent.
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
