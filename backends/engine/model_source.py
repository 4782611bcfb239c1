"""Finds a model's directory: on this machine, else from the Hugging Face hub if it is reachable."""

import re
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError

_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WANTED: Final = ["*.safetensors", "*.json", "*.jinja"]


def find_model(source: str) -> Path:
    """Return the directory of a model, downloading it from the hub if needed. Blocks. Raises ConfigurationError."""
    path = Path(source).expanduser()
    if path.is_dir():
        return path.resolve()
    if not _HUB_NAME.fullmatch(source):
        raise ConfigurationError(f"there is no model directory {source}; give the path of a Hugging Face directory")
    from huggingface_hub import constants, snapshot_download  # imported here: it takes a second, and few hosts need it
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=_WANTED))
    except HfHubHTTPError as error:
        status = "an error" if error.response is None else f"status {error.response.status_code}"
        raise ConfigurationError(
            f"{constants.ENDPOINT} answers {status} for model {source!r}; check its name and HF_TOKEN, or give the "
            "path of a local directory"
        ) from error
    except (LocalEntryNotFoundError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{source!r} is not a local directory, and the model hub at {constants.ENDPOINT} cannot be reached; "
            "give the path of a local directory"
        ) from error
