"""DynamicResources: allocates the devices of ResourceClaims (kubernetes plugins/dynamicresources)."""
