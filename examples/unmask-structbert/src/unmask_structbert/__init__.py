"""Plug-ins of unmask: StructBERT's word structural objective, its masking, and a task with ranks as labels."""
