"""The demonstration's story: three tenants with thirty days of made-up history, an outage, agents and a rollout."""
