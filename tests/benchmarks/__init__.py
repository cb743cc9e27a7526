"""What the project costs: a module per part, each a generator of lines of the table."""
