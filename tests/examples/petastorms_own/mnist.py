"""Petastorm's MNIST example with scikit-learn's digits: write with Spark, train with PyTorch and TensorFlow graphs."""

import sys

import numpy as np
import tensorflow.compat.v1 as tf
from examples.mnist import pytorch_example, tf_example
from examples.mnist.generate_petastorm_mnist import mnist_data_to_petastorm_dataset
from sklearn.datasets import load_digits


class Image:
    """The part of a PIL image that the generator uses."""

    def __init__(self, digit):
        self.pixels = np.kron(digit[:7, :7], np.ones((4, 4))).astype(np.uint8) * 15

    def getdata(self):
        return self.pixels.ravel()


folder, url = sys.argv[1], f"file://{sys.argv[1]}/mnist"
digits = load_digits()
pairs = [(Image(image), int(digit)) for image, digit in zip(digits.images, digits.target, strict=True)]
mnist_data_to_petastorm_dataset(
    folder, url, spark_master="local[2]", mnist_data={"train": pairs[:1500], "test": pairs[1500:]}
)
sys.argv = ["pytorch_example", "--dataset-url", url, "--epochs", "2", "--lr", "0.05"]
pytorch_example.main()
with tf.Graph().as_default():
    tf_example.train_and_test(url, training_iterations=30, batch_size=50, evaluation_interval=10)
