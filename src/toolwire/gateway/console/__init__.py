"""The console: a page in the browser that shows exchanges and their losses, a playground, runs and status."""
