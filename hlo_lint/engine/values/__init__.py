"""The judge of values: modules run on the same inputs, their results compared."""
