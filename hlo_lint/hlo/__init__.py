"""The HLO language: its data model, its parsers, its attributes."""
