"""What a model writes, told apart as it comes: reasoning, text and tool calls."""
