"""The HTTP server: ASGI application, connections, authentication, worker processes and start-up."""
