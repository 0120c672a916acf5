"""Reading: named sets and files of every format become a `Dataset`."""
