"""`python -m backends.store`: runs the embedded store until stopped."""

import os
import sys

from pydantic import ValidationError

from backends.processes.logs import start_logging
from backends.processes.process import require_known_variables
from backends.secrets.private_files import keep_private
from backends.store.embedded import EmbeddedStore
from backends.store.settings import StoreSettings
from contracts.errors import TollkeeperError


def main() -> int:
    """Run the store; return 0 after a requested stop, 2 if it cannot run."""
    start_logging()
    try:
        require_known_variables()
        settings = StoreSettings()
        start_logging(settings)
        keep_private(settings.data)
        EmbeddedStore(settings).run()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        print(f"store: TOLLKEEPER_{name}: {first['msg']}", file=sys.stderr)
        return 2
    except TollkeeperError as error:
        print(f"store: {error.message}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # the engine's threads may outlive a failed start; do not wait for them
