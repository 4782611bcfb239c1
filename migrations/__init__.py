"""Brings the control-plane database (Alembic) and the telemetry store (numbered SQL files) to this version's schema."""
