"""Kernels alone: each is a module of its own, judged apart from its program."""
