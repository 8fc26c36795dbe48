"""One file a rule, one folder a family; nothing else lists them."""
