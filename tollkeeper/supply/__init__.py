"""Supply chain: pinned versions, advisories about them, and a bill of materials."""
