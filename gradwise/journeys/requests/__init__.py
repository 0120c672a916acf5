"""What the user gives: options, knobs to set and ranges to search, from the command line, TOML files or Python."""
