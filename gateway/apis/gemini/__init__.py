"""Google's Gemini API: a request becomes a chat at the edge, and the chat's answer a `GenerateContentResponse`."""
