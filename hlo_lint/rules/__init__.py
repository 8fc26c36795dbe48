"""The rules: a file for each rule, a folder for each family; there is no other list."""
