"""Descriptors of the Tensor Memory Accelerator: conditions on them, readers of printed ones."""
