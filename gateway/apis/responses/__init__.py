"""OpenAI's Responses API. A request is translated to a chat, the answer is rendered as a response, and stored."""
