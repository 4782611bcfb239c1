"""OpenAI's Responses API: read, sent to a model as a chat, rendered, stored."""
