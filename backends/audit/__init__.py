"""The audit log on disk: chained entries in segments, signed checkpoints, verification, retention and sinks."""
