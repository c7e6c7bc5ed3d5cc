"""`wiresum demo`: trains a network on handwritten digits through a lossy software switch, and again with Gloo."""
