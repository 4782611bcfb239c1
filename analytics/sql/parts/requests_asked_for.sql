-- Requests that began from {start} on and before {end} (Unix seconds), of a tenant, team, project and model: of all where
-- it is null.
started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND {{of_whom}}
