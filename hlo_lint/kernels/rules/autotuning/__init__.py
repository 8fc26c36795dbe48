"""Autotuning: kernels that tune on the program's own buffers, backends that may change."""
