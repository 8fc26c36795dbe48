"""What is found and allowed: comments in the text, allowances that were configured, a baseline."""
