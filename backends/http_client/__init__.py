"""HTTP/1.1 client connections to model servers, kept alive in pools."""
