"""What the program under test loads at its start; PYTHONPATH names this folder."""
