"""OTLP messages, Prometheus text, and Parquet files."""
