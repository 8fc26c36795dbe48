"""Memory of values: the buffer assignment against the aliasing that instructions declare."""
