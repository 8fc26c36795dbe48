"""All that works with jax in the process: captures, the hook into XLA, the pytest plug-in."""
