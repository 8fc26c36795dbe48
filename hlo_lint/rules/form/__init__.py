"""The form of the text: syntax, names, cycles."""
