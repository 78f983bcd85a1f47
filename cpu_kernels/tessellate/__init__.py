"""cpu.tessellate: tiles that shrink and tiles that grow fill space and time."""
