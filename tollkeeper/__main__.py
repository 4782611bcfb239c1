"""`python -m tollkeeper`: the command line, for where its script is not on the path."""

from tollkeeper.cli import app

app()
