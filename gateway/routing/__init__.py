"""Which replica of a pool answers: what is known of each, the policies that choose by it, and the index of caches."""
