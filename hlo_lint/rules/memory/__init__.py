"""Memory of values: buffers that are reused, aliased or misplaced."""
