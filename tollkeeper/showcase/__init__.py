"""The demo's data: three tenants with 30 days of generated history, an outage, coding agents and a rollout."""
