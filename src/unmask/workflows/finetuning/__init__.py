"""Fine-tuning on labeled examples: single runs, several seeds, and runs with a frozen encoder."""
