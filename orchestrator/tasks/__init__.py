"""What lies below a sweep's ``tasks/``: intents, tasks, what they report, what users ask."""
