"""The controller's decisions by theme; `machine` takes the events."""
