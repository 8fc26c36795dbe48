"""Compiles jax programs so that every pass is on disk: here, for a GPU that is not here, and by
other releases of jax."""
