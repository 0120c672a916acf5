"""Gradient descent and its schedules."""
