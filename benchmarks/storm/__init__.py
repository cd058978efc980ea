"""A seeded adversary on a throw-away cluster; `__main__` states what it checks."""
