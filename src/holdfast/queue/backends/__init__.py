"""What keeps messages: in memory, in SQLite, in PostgreSQL. Each fulfils `holdfast.queue.backend.Backend`."""
