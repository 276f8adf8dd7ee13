"""What is asked of one broker of a source, over which connections, and how much at once."""
