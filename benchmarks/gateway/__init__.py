"""Cost of an exchange through the gateway, compared with a plain proxy and another gateway."""
