"""Choices of the GPU autotuner: how stable each is, the effect of a different one."""
