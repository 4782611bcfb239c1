"""Whether answers are still what they were: distributions against a reference, feedback, judges."""
