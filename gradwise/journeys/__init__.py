"""What a user sets out to do, from the request to the written result: the same code for Python and the command line.

A journey validates the request, works, writes a folder and returns a record. It prints nothing: whoever wants to
follow it passes a `progress`.
"""
