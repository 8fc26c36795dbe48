"""Tensor descriptors of the Tensor Memory Accelerator (NVIDIA Hopper and later)."""
