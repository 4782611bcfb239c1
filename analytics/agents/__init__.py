"""Coding agents: cost of sessions, repositories, developers and tools; loops; prompt cache hits."""
