"""Backends that store messages in memory, in SQLite and in PostgreSQL. Each implements `queue.backend.Backend`."""
