"""One partition's copy: where it goes on, what it appends, and what stops it."""
