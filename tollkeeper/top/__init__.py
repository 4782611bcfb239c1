"""`tollkeeper top`: what the gateway does now, in a terminal."""
