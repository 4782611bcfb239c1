"""Questions and answers: one SQL file or pure function each."""
