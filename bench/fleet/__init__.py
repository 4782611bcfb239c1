"""Several gateways as processes, the Redis they count in, clients that wait as they are told, and the books after."""
