"""The server: the HTTP API, credentials, and event streams. `holdfast up` runs it.

May import `compose` and everything below it. The only folder that imports Litestar and uvicorn, and only in the
modules that need them, so that the command line can manage credentials without them. Start reading at `app.py`.
"""
