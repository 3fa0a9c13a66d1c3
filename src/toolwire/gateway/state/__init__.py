"""Server-side state: stored responses, conversations, background jobs and signatures withheld from clients."""
