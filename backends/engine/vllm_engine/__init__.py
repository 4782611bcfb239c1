"""Runs vLLM as an engine of the engine host, with the same protocol, records and GPU-time accounting as our
own engine.
"""
