"""The contents of a sweep's ``tasks/``: intents, tasks, their reports, and users' requests."""
