"""LiteLLM's virtual environment. `python -m tollkeeper.provider_environment` installs it (make providers)."""

import sys
from pathlib import Path
from typing import Final

from tollkeeper.own_environment import Contents, OwnEnvironment, main
from tollkeeper.packaged_files import ROOT

_LITELLM: Final = Contents("LiteLLM", ".venv-providers", "providers.txt", "about a minute", "make providers")


class ProviderEnvironment(OwnEnvironment):
    """The virtual environment `.venv-providers` beside the code, or a Python that the operator names."""

    def __init__(self, root: Path = ROOT, python: str = "", *, installs: bool = False) -> None:
        super().__init__(_LITELLM, root, python, installs=installs)


if __name__ == "__main__":
    sys.exit(main(ProviderEnvironment(installs=True)))
