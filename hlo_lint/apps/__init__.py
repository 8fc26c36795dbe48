"""The programs people start: command line, language server, jax and pytest."""
