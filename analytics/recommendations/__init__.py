"""How to spend less: what the records of a time say could be saved, with the evidence, the largest saving first."""
