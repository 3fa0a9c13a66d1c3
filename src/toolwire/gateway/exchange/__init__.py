"""One exchange: routing, request preparation, sending with retries and failover, and response translation."""
