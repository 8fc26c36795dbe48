"""Bytes to modules: a fast parser for text as XLA prints it, a general parser for any other."""
