"""Data preparation: sources, readers, turn format, filters, packing and inspection of `.btok` files."""
