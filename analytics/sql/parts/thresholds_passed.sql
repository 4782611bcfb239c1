-- How many of {thresholds} a request's input exceeds.
arrayCount(
    above ->
        ifNull(tokens_input_text, 0) + ifNull(tokens_input_audio, 0) + ifNull(tokens_input_image, 0)
        + ifNull(tokens_cache_read_text, 0) + ifNull(tokens_cache_read_audio, 0)
        + ifNull(tokens_cache_write_5m, 0) + ifNull(tokens_cache_write_1h, 0) > above,
    {thresholds:Array(UInt64)}
)
