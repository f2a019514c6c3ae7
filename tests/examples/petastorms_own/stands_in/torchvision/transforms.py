"""Functions of torchvision that Petastorm's MNIST example uses."""

import torch


class Compose:
    """Composition of functions."""

    def __init__(self, functions):
        self.functions = functions

    def __call__(self, value):
        for function in self.functions:
            value = function(value)
        return value


class Lambda:
    """Wrapper of a function."""

    def __init__(self, function):
        self.function = function

    def __call__(self, value):
        return self.function(value)


class ToTensor:
    """Conversion of uint8 (height, width, channels) to float32 from 0 to 1, (channels, height, width)."""

    def __call__(self, image):
        return torch.from_numpy(image).permute(2, 0, 1).to(torch.float32) / 255


class Normalize:
    """Normalization of each channel by a mean and a standard deviation."""

    def __init__(self, means, deviations):
        self.means, self.deviations = (torch.tensor(values).reshape(-1, 1, 1) for values in (means, deviations))

    def __call__(self, image):
        return (image - self.means) / self.deviations
