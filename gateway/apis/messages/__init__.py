"""Anthropic's Messages API. A request is translated to a chat, and the chat's answer to a message."""
