-- Sums of tokens by kind, in the order of the kinds.
[
    sum(toUInt64(ifNull(tokens_input_text, 0))), sum(toUInt64(ifNull(tokens_input_audio, 0))),
    sum(toUInt64(ifNull(tokens_input_image, 0))), sum(toUInt64(ifNull(tokens_cache_read_text, 0))),
    sum(toUInt64(ifNull(tokens_cache_read_audio, 0))), sum(toUInt64(ifNull(tokens_cache_write_5m, 0))),
    sum(toUInt64(ifNull(tokens_cache_write_1h, 0))), sum(toUInt64(ifNull(tokens_output_text, 0))),
    sum(toUInt64(ifNull(tokens_output_reasoning, 0))), sum(toUInt64(ifNull(tokens_output_audio, 0))),
    sum(toUInt64(ifNull(tokens_output_image, 0)))
]
