"""Envoy's external processing (`ext_proc`): the messages that are used, and a server of them."""
