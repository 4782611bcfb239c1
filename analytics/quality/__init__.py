"""Quality of answers over time: distributions compared with a reference, feedback, judges."""
