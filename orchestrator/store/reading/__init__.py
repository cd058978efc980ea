"""Reading the store while others write, and portable copies."""
