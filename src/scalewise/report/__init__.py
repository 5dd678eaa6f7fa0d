"""Show results to people: tables, plots, pages."""
