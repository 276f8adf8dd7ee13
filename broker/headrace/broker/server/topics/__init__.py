"""Creating, growing and deleting topics as clients ask for it."""
