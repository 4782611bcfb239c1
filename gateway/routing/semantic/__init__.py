"""What a prompt is about and how hard it is, told by examples, for routes that choose by that."""
