"""Fine-tuning of one encoder for several tasks: batches of one task each, and a model for each task."""
