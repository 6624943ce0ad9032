"""A server of models over HTTP: routes of Text Embeddings Inference and of OpenAI, and of unmask's other tasks."""
