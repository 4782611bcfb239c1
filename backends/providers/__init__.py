"""The provider host: calls hosted models through LiteLLM, in a process and a virtual environment of its own.

It imports only `contracts` and the few modules of `backends` for connections, encrypted keys and process start, so that
its environment (constraints/providers.txt) does not need the base environment's packages.
"""
