"""What the gateway remembers: answers by their ids, conversations, and proofs that a protocol can't carry."""
