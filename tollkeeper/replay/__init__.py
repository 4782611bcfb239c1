"""Plays recorded workloads through the gateway, as the applications that they were recorded from did."""
