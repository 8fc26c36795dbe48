"""Code about GPU kernels only."""
