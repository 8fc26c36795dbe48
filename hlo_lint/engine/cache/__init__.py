"""Findings of earlier runs, by the content of files, the rules and the settings."""
