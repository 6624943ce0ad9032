"""What users start: pretraining, fine-tuning, distillation, and estimators for scikit-learn."""
