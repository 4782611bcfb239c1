"""Engine hosts of ours, reached over sockets."""
