"""An answer: its body, or an error."""
