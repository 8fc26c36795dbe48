"""Descriptors of the Tensor Memory Accelerator: what one must keep to, and where texts hold one."""
