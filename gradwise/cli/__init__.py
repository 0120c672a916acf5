"""The command line: strings come in, records go out, and mistakes become one line each."""
