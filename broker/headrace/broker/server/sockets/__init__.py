"""The connections of clients: who is let in, whose turn it is, bytes in and replies out."""
