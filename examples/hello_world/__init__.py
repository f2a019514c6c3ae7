"""Petastorm's hello world: ten rows with an image and an array, written by Spark, read by Python, torch and TensorFlow.

```bash
python -m examples.hello_world.write
python -m examples.hello_world.read_python
python -m examples.hello_world.read_torch
python -m examples.hello_world.read_tensorflow
```

Each takes the URL of the dataset as its only argument; by default it lies in `.demo/hello_world` of the clone.
"""
