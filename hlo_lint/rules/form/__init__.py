"""The form of the text, which needs no knowledge of the passes."""
