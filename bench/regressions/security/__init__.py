"""Walls between who uses an installation and its books, files and tokens."""
