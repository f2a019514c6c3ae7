"""Framework adapters: convert batches to tensors of PyTorch, TensorFlow, JAX or Keras, one module per framework."""
