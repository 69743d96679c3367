"""Ways to confine: the Backend seam, the registry, and one module or folder for each backend."""
