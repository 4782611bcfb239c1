-- The time of {start} to {end} outside whole days, for a rollup.
toDateTime(bucket, 'UTC') >= toDateTime({start:UInt32}, 'UTC')
    AND toDateTime(bucket, 'UTC') < toDateTime({end:UInt32}, 'UTC')
    AND ({start:UInt32} < {first_day:UInt32} OR {end:UInt32} > {end_day:UInt32})
    AND (toDateTime(bucket, 'UTC') < toDateTime({first_day:UInt32}, 'UTC')
        OR toDateTime(bucket, 'UTC') >= toDateTime({end_day:UInt32}, 'UTC'))
