"""What a group is on disk: its arrays, how they are cut, and the form of one file."""
