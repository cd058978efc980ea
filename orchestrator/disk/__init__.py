"""Files on a shared disk: files and folders written whole, records, tables, leases."""
