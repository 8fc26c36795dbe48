"""Kernels that tune themselves on the program's own memory."""
