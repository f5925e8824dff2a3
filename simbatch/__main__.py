"""`python -m simbatch` is the command `simbatch`."""

from simbatch.cli import main

if __name__ == "__main__":
    main(prog_name="simbatch")
