"""Fields of objects as people write them, over HTTP and in the YAML file."""
