"""The data plane and the control plane."""
