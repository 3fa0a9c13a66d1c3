"""Contents, parts, calls and results of `generateContent`."""
