"""What stands on a shared disk: whole files and folders, records, tables, leases."""
