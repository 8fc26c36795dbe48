"""Rules about GPU kernels, a folder for each family."""
