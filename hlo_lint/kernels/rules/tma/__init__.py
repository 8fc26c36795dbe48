"""Tensor descriptors of the Tensor Memory Accelerator (from NVIDIA Hopper on)."""
