"""Code shared by Google's two protocols, `generateContent` and Interactions."""
