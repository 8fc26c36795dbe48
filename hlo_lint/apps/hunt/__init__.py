"""A hunt for bugs of a released XLA: modules like those that passes rewrite, and their judges."""
