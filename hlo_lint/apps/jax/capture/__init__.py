"""Compiles jax programs with a dump of every pass: here, for absent chips, with other releases."""
