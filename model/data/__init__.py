"""Tables and what is in them: files, cells, columns, the schema, splits into folds."""
