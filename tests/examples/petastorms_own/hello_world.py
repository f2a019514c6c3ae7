"""Petastorm's hello-world examples: write with Spark; read with Python, PyTorch, TensorFlow sessions and Spark."""

import sys

import tensorflow.compat.v1 as tf
from examples.hello_world.external_dataset.generate_external_dataset import generate_external_dataset
from examples.hello_world.external_dataset.python_hello_world import python_hello_world as read_batches
from examples.hello_world.external_dataset.pytorch_hello_world import pytorch_hello_world as batches_to_torch
from examples.hello_world.external_dataset.tensorflow_hello_world import tensorflow_hello_world as batches_to_tensorflow
from examples.hello_world.petastorm_dataset.generate_petastorm_dataset import generate_petastorm_dataset
from examples.hello_world.petastorm_dataset.pyspark_hello_world import pyspark_hello_world
from examples.hello_world.petastorm_dataset.python_hello_world import python_hello_world
from examples.hello_world.petastorm_dataset.pytorch_hello_world import pytorch_hello_world
from examples.hello_world.petastorm_dataset.tensorflow_hello_world import tensorflow_hello_world

own, plain = (f"file://{sys.argv[1]}/{name}" for name in ("own", "plain"))
tf.disable_eager_execution()  # TensorFlow 1, for which the examples were written, has no eager execution
generate_petastorm_dataset(own)
for example in (python_hello_world, pytorch_hello_world, tensorflow_hello_world, pyspark_hello_world):
    print(f"== {example.__name__}")
    example(own)
generate_external_dataset(plain)
for example in (read_batches, batches_to_torch, batches_to_tensorflow):
    print(f"== {example.__name__} of batches")
    example(plain)
