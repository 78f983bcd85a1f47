"""cpu.stream: strips of the grid streamed through the caches, many time levels in flight."""
