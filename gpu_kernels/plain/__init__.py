"""gpu.plain: one sweep per launch."""
