"""The parts that use jax: captures, the hook into a running compile, the pytest plug-in."""
