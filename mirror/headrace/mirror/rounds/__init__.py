"""What is done again and again beside the copying: syncs of a source by one broker for all, comparisons of copies."""
