"""Authenticated frames between two processes, over unix sockets and TLS; nothing here knows what they say."""
