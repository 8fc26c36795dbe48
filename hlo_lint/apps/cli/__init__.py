"""Commands of `hlo-lint`: a module for each, imported when the command runs."""
