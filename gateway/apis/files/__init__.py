"""Files that applications upload and read back."""
