"""gpu.stream: several time levels in registers and shared memory while rows stream by."""
