"""Which release of this package it is."""

__version__ = "0.1.0"
