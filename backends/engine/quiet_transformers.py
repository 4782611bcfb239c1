"""Stops transformers from writing progress bars and reports into a process's log."""

from transformers.utils.logging import disable_progress_bar, set_verbosity_error


def quiet_transformers() -> None:
    """Make transformers log only errors, in the whole process."""
    disable_progress_bar()
    set_verbosity_error()
