"""Runs rules over files and pipelines, and applies their fixes."""
