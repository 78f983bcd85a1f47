"""Machine: what a computer has, and which part of it belongs to whom."""
