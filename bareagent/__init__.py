"""A coding agent for the terminal; the program starts in `bareagent.cli`."""

__version__ = "0.1.0"
