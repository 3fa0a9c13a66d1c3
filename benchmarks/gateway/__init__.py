"""What an exchange through the gateway costs, beside a proxy that translates nothing and a gateway that does."""
