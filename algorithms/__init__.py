"""Pure algorithms: replica choice, detectors, GPU time attribution, batching rules. No I/O."""
