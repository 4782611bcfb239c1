"""The telemetry store: ClickHouse by URL, or its engine embedded in a process of ours."""
