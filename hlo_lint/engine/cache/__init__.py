"""Findings of earlier runs, by the content of files under the same rules with the same settings."""
