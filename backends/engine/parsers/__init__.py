"""Parsers of model output as it arrives: reasoning, text and tool calls."""
