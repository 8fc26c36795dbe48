"""Descriptors of the Tensor Memory Accelerator: their conditions, and readers of printed ones."""
