"""Agents' books: what sessions, repositories, developers and tools cost, loops, and prompt caches."""
