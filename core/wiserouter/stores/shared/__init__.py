"""The store that several workers share."""
