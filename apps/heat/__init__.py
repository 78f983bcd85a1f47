"""Heat conduction: from materials, regions, sources and faces to a `Problem`."""
