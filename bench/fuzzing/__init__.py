"""What the fuzzing of the data plane is made of: a gateway with its books, generators, and what must hold."""
