"""What the collector receives, sent on to others as well: by OTLP or through NATS JetStream, at least once."""
