"""Petastorm's documented examples, written anew against its old names: each runs here as it is, through the switch.

```bash
python -m petastore.interop.petastorm -m examples.from_petastorm.hello_world /tmp/hello
python -m petastore.interop.petastorm -m examples.from_petastorm.external_dataset /tmp/external
python -m petastore.interop.petastorm -m examples.from_petastorm.mnist /tmp/mnist
python -m petastore.interop.petastorm -m examples.from_petastorm.imagenet /tmp/imagenet
python -m petastore.interop.petastorm -m examples.from_petastorm.converter /tmp/converter
```

Each takes a folder, writes its dataset there by Spark, and reads it; none downloads anything.
"""
