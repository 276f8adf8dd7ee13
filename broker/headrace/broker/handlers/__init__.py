"""One file per API key: check, call the core, build the response."""
