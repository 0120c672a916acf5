"""What the person at the terminal sees."""
