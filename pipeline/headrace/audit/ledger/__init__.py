"""What the audit knows of all tiers, open and settled, and how that outlives its process."""
