"""GPU kernels: custom-call payloads, PTX, TMA descriptors, autotuning, and their rules."""
