"""Batches: requests that an application leaves in a file and whose answers it collects later."""
