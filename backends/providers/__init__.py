"""The provider host: hosted models through LiteLLM, in a process and a virtual environment of their own.

Imports nothing of ours but `contracts`, the engine hosts' connection, what opens sealed keys and the start of a
process, so that its environment (constraints/providers.txt) needs nothing of the base environment.
"""
