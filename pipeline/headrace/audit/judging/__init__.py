"""What the ledger's tiers say when they are compared: lost, doubled, late, under way, settled."""
