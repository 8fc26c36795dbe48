"""Passes that change the values or the tiles of a kernel."""
