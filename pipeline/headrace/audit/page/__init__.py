"""The audit as HTML: the report as one file, and the page that follows what happens."""
