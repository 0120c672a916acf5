"""Figures of records: each function selects the data, draws them and writes the caption."""
