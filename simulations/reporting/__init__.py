"""How finished runs are read, and what is made of them: tables, figures, a page."""
