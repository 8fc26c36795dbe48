"""The form of the text: syntax, names and cycles."""
