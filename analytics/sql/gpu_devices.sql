-- The sampled GPUs and their models.
SELECT
    toString(device) AS device_label,
    toString(any(device_model)) AS model_label
FROM gpu_samples
WHERE at >= toDateTime64({start:Float64}, 9, 'UTC')
    AND at < toDateTime64({end:Float64}, 9, 'UTC')
GROUP BY device_label
