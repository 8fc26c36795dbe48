"""Commands of `hlo-lint`, one module each, imported when the command is asked for."""
