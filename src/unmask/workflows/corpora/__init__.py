"""What is in a corpus: a report on it, texts to read, and how it differs from another one."""
