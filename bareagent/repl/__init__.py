"""The face in the terminal."""
