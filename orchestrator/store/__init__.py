"""The predictions on disk: layout, journals, publication, reading, verification."""
