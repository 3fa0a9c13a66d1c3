"""`python -m toolwire` runs the command line."""

from toolwire.cli import main

if __name__ == "__main__":
    main(prog_name="toolwire")
