"""What to try next: each strategy takes the history and returns proposals."""
