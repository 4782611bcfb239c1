"""One file per way to reach a model."""
