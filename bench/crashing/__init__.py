"""The parts of `python -m bench.crash`: processes that are killed, a balancer between them, clients that count."""
