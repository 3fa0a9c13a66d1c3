"""The gateway: serves clients of any supported protocol in front of providers of any other."""
