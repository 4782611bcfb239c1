-- The whole days from {first_day} to {end_day}, for a rollup; none if equal.
toDateTime(bucket, 'UTC') >= toDateTime({first_day:UInt32}, 'UTC')
    AND toDateTime(bucket, 'UTC') < toDateTime({end_day:UInt32}, 'UTC')
    AND {first_day:UInt32} < {end_day:UInt32} -- else nothing is read, here as below
