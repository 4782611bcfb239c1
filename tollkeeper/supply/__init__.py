"""Supply chain tools: pinned versions, security advisories, and a software bill of materials."""
