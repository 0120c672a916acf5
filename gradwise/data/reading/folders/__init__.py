"""Folders whose sub-folders are classes: pictures, or recordings."""
