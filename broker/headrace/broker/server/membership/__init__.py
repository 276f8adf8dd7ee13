"""This broker as a member of its cluster: its session, its registration, its ids."""
