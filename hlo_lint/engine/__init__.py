"""Run rules over files and compilations, and apply their fixes."""
