"""What is minimised: losses, penalties and their sum."""
