"""Passes that change what a kernel computes."""
