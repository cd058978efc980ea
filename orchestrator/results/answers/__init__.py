"""How each question with options is answered, and what the page begins with."""
