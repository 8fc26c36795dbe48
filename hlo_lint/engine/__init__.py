"""Run rules over files and pipelines, and apply their fixes."""
