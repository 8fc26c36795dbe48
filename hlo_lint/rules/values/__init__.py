"""Values: computations whose result is not what their opcodes promise."""
