"""Reading while others write, and portable copies."""
