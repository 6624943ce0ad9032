"""Reading raw files, and splitting them into documents and sentences."""
