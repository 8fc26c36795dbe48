"""Values: modules run on inputs, and the results compared."""
