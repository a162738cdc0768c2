"""`python -m wiserouter.cli`."""

from wiserouter.cli import main

if __name__ == "__main__":
    main()
