"""Where notices go: one file per kind of receiver. An attempt never raises; it says what became of it."""
