"""What tells abuse of a key apart from its use, computed from requests as they come; each structure is bounded."""
