"""`python -m examples.digits`. The ranks import this file too, so it imports nothing that they do not need."""

import sys

if __name__ == "__main__":
    from examples.digits.demo import main

    sys.exit(main())
