"""When requests are made: how many at a time, how many a second, when again, and when a second time."""
