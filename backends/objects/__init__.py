"""What applications keep at the gateway: files, batches, answers."""
