"""Rollouts at a gateway: assignment to arms, results of both, shadow requests, rollback."""
