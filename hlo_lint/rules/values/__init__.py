"""Values: computations with wrong, rounded or unpredictable results."""
