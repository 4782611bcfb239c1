-- Filter by start ({start} to {end}, Unix s, exclusive end), tenant, team, project and model; NULL: all.
started_at >= toDateTime64({start:UInt32}, 9, 'UTC')
    AND started_at < toDateTime64({end:UInt32}, 9, 'UTC')
    AND {{of_whom}}
