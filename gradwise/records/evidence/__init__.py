"""What a fit and a check have seen: the numbers behind their figures, tables and verdicts."""
