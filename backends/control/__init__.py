"""The one door to the control-plane database."""
