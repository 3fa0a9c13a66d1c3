"""What happened: exchanges, recorded, shown, exported and replayed."""
