"""What the server answers to: one module for each group of routes, thin over the part that it shows."""
