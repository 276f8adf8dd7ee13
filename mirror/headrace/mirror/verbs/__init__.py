"""What the verbs of `headrace mirror` decide and have the brokers do."""
