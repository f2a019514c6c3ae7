"""This tree beside another commit of it: the same data, the same environment, in turns."""
