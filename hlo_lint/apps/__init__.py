"""The programs that people start: command line, language server, hooks into jax, pytest plug-in."""
