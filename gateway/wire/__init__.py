"""HTTP/1.1 on the data plane's port: connections, limits on them, requests in and errors out."""
