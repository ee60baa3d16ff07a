"""Tables: files, cells, columns, the schema, and the split into training and held-out rows."""
