"""Text to rows and back: the scanner, and lazy readers of what rows hold as text."""
