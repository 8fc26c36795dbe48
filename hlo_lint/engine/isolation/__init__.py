"""Kernels alone: each as a module of its own, compiled and judged apart from its program."""
