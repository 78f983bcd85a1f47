"""Configuration sections: keys, types, units and defaults. Begin with `schema.Request`."""
