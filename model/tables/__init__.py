"""Tables: files and data frames to typed columns, a schema and splits."""
