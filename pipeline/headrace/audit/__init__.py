"""The ledger that proves what arrived, what was lost and how long it took."""
