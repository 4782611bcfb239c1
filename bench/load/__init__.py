"""What the gateway's benchmark loads and measures with: a mock upstream, a load client, pinned processes, samples."""
