"""The protocol between gateways and engine hosts."""
