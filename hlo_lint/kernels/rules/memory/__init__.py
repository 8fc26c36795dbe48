"""Memory of kernels: lost aliases, wrong offsets, misaligned slices, races."""
