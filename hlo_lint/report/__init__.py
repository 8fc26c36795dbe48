"""Reports of findings, for people or for programs."""
