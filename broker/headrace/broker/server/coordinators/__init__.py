"""The coordinators of groups and of transactions on the partitions that this broker leads, and their words to leaders."""
