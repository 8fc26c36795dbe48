"""The text is a module: what can be said before anything is known of the passes."""
