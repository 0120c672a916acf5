"""Where a study is kept: trials, trained networks, and the file that repeats it."""
