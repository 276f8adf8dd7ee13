"""Whether copies hold what their sources hold, byte for byte, and where they part."""
