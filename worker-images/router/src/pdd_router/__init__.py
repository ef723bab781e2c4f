"""The request path of PDD: one package, one image, two modes (front and main)."""
