"""Code that several protocols of one vendor share: OpenAI's two, Google's two."""
