"""Criteria that read sparse rows at some of their columns."""
