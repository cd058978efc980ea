"""A seeded adversary on a throw-away cluster; `__main__` says what it promises."""
