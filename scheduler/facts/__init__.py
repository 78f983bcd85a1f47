"""Facts: what a plan says and what a link is. Data only."""
