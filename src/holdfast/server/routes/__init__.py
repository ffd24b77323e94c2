"""The routes of the server: one thin module for each group."""
