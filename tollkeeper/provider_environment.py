"""LiteLLM's virtual environment: made where it is needed, and made again when its list of versions has changed.

`python -m tollkeeper.provider_environment` makes it (make providers).
"""

import sys
from pathlib import Path
from typing import Final

from tollkeeper.own_environment import ROOT, Contents, OwnEnvironment, main

_LITELLM: Final = Contents("LiteLLM", ".venv-providers", "providers.txt", "about a minute")


class ProviderEnvironment(OwnEnvironment):
    """The folder `.venv-providers` beside the code, or another Python that the operator names."""

    def __init__(self, root: Path = ROOT, python: str = "") -> None:
        super().__init__(_LITELLM, root, python)


if __name__ == "__main__":
    sys.exit(main(ProviderEnvironment()))
