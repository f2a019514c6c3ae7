"""Framework adapters: convert batches for PyTorch, TensorFlow, JAX and Keras.

Each framework has its own module or package.
"""
