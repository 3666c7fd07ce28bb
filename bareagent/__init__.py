"""A coding agent for the terminal; the program starts in `bareagent.__main__`."""

__version__ = "0.1.0"
