"""Removes environment variables that LiteLLM would read by itself, such as keys and log destinations."""

from collections.abc import Iterable, MutableMapping
from fnmatch import fnmatchcase
from typing import Final

# Variables that any program needs: paths, and network settings.
_KEPT: Final = (
    *("PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR", "USER", "LOGNAME", "PYTHON*", "VIRTUAL_ENV", "TOLLKEEPER_*"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
_TAKEN: Final = ("TOLLKEEPER_SEALING_KEYS",)  # always removed: it decrypts the stored keys
_SAID_TO_LITELLM: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else its import downloads a list of prices
    "LITELLM_MODE": "PRODUCTION",  # else it loads a .env file from wherever it is started
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",  # else it fetches images from any URL in a request
    "HF_HUB_OFFLINE": "1",  # else it downloads tokenizers
}


def withdraw(environment: MutableMapping[str, str], also_kept: Iterable[str]) -> dict[str, str]:
    """Remove all variables except those that any program needs and `also_kept`; return the previous environment."""
    before = dict(environment)
    kept = (*_KEPT, *also_kept)
    for name in before:
        if name in _TAKEN or not any(fnmatchcase(name, pattern) for pattern in kept):
            del environment[name]
    environment.update(_SAID_TO_LITELLM)
    return before
