"""Hosted features the upstream lacks, emulated by the gateway: tool search and programs that call tools."""
