"""OpenAI's Responses API: read, asked of a model as a chat, rendered, kept."""
