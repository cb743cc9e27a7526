"""What there is to hold: images, tables, and files of one's own."""
