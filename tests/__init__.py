"""Tests, all through public doors: real files, real processes, real HTTP."""
