"""The configuration of a broker and of its topics: what each key is, what is allowed, what changes while it runs."""
