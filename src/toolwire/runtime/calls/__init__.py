"""Tool calls: validation, policy and approval, execution and output limits."""
