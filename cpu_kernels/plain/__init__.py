"""cpu.plain: one sweep per step."""
