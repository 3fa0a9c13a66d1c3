"""Translation of bodies and streams between protocols, with every loss reported."""
