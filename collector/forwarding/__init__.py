"""Forward received telemetry to other systems, by OTLP or NATS JetStream, at least once."""
