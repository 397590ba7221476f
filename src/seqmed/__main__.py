"""`python -m seqmed`: the command line."""

from seqmed.cli import main

if __name__ == "__main__":
    main()
