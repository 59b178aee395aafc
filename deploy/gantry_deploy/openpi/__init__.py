"""Policies behind a websocket, in openpi's protocol: a client, a server for bundles, and descriptions of policies."""
