"""Google's Gemini API. A request is translated to a chat, and the chat's answer to a `GenerateContentResponse`."""
