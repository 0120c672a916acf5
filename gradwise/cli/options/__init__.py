"""The options of each command, from the command line and from TOML files."""
