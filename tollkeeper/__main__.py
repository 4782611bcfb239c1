"""`python -m tollkeeper`: the command line, if the `tollkeeper` script is not on the path."""

from tollkeeper.cli import app

app()
