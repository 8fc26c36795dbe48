"""Proofs that a fix keeps every value."""
