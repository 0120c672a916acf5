"""What it all means: the verdict, its causes and its remedies."""
