"""The names of the endpoints that a key can be restricted to: paths of the data plane below /v1, with dots for slashes,
and `mcp`.
"""

from typing import Literal

Endpoint = Literal[
    "chat.completions",
    "completions",
    "embeddings",
    "rerank",
    "score",
    "images.generations",
    "audio.transcriptions",
    "audio.speech",
    "moderations",
    "responses",
    "messages",
    "generate_content",
    "files",
    "batches",
    "mcp",
]
