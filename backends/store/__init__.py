"""The telemetry store: a ClickHouse server, or its engine embedded in a process."""
