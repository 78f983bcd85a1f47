"""What leaves a running simulation: fields, probes, statistics, pictures."""
