"""`python -m bareagent` is the same as the command `bareagent`."""

from bareagent.cli import main

if __name__ == "__main__":
    main()
