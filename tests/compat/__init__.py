"""The program against servers that nobody here wrote; docs/compat.md says what each can play."""
