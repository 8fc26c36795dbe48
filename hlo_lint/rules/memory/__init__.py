"""Memory of values: buffer assignments checked against schedules and declared aliasing."""
