"""`tollkeeper top`: live figures of the gateway in a terminal."""
