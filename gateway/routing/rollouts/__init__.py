"""Rollouts at a gateway: assignment to arms, results of both arms, shadow requests, rollback."""
