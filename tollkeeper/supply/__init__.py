"""What the installation is made of: versions that are pinned, advisories about them, and a bill of materials."""
