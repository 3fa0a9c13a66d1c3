"""Security advisories and fixes of comparable products, each with the tests that rule the weakness out here."""

from tests.requirements.tables import Requirement, parse_requirements

# Weaknesses that were published for other gateways, agent SDKs and MCP servers.
ADVISORIES: list[Requirement] = parse_requirements(r"""
CVE-2026-42208 SQL injection before authentication: the `Authorization` header was concatenated into a query.
  -> tests/gateway/test_security.py::test_header_values_are_plain_text
  -> tests/journal/test_injection.py::test_sql_statements_are_constants
  -> tests/journal/test_injection.py::test_special_characters_in_ids_do_not_change_queries
  -> tests/scenarios/test_sdk_state.py::test_malformed_id_is_not_found
CVE-2026-49468 Authentication bypass: the path was rebuilt from the `Host` header before the check.
  -> tests/gateway/test_security.py::test_no_path_spelling_bypasses_authentication
  -> tests/gateway/test_security.py::test_dns_rebinding_does_not_reach_a_loopback_gateway
  -> tests/gateway/server/test_auth.py::test_invalid_host_is_rejected_with_or_without_keys
CVE-2026-48710 Path confusion: `/`, `?` or `#` in the `Host` header changed the path that a framework saw.
  -> tests/gateway/test_security.py::test_no_path_spelling_bypasses_authentication
  -> tests/gateway/test_security.py::test_dns_rebinding_does_not_reach_a_loopback_gateway
  -> tests/gateway/server/test_auth.py::test_invalid_host_is_rejected_with_or_without_keys
CVE-2026-30623 Remote code execution: an API request could define the command of a stdio MCP server.
  -> tests/gateway/test_security.py::test_no_admin_endpoints_and_no_files_are_served
  -> tests/runtime/mcp/test_security.py::test_requests_cannot_start_programs_or_add_servers
  -> tests/runtime/mcp/test_security.py::test_programs_start_in_one_place_without_a_shell
CVE-2026-40217 Remote code execution: user code ran in the process of the gateway behind a deny list.
  -> tests/gateway/test_security.py::test_text_is_never_executed
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
  -> tests/scenarios/test_code_execution.py::test_modified_snapshot_in_the_journal_is_rejected
CVE-2026-47101 Privilege escalation: an API for keys and users accepted fields that the caller had no right to set.
  -> tests/gateway/test_security.py::test_no_admin_endpoints_and_no_files_are_served
userinfo-cache-collision Authentication bypass: two identities shared one cache key.
  -> tests/gateway/server/test_auth.py::test_key_is_accepted_in_any_protocols_header
  -> tests/gateway/exchange/test_dispatcher.py::test_losses_are_in_a_header_and_readable_by_the_same_key_only
CVE-2024-6587 Server-side request forgery: the request body could choose the upstream host, which got the key.
  -> tests/gateway/test_security.py::test_client_can_not_choose_upstream_host_or_headers
CVE-2024-8984 Denial of service before authentication: a malformed body took unbounded time to parse.
  -> tests/gateway/test_security.py::test_invalid_body_is_an_error_not_a_crash
  -> tests/gateway/test_security.py::test_body_over_the_limit_is_refused_with_or_without_content_length
  -> tests/gateway/server/test_endpoints.py::test_invalid_compressed_body_is_refused
malicious-release Supply chain: a compromised release on PyPI ran code at interpreter start through a `.pth` file.
  -> tests/requirements/test_requirements.py::test_the_package_has_few_dependencies_and_no_startup_hook
CVE-2026-25591 Denial of service: wildcards from a request reached a `LIKE` pattern.
  -> tests/journal/test_injection.py::test_like_patterns_are_constants
GHSA-g53w-w6mj-hrpp Authentication bypass: a client header chose the upstream, protected only by a default secret.
  -> tests/gateway/test_security.py::test_client_can_not_choose_upstream_host_or_headers
  -> tests/gateway/server/test_launch.py::test_invalid_configuration_is_a_one_line_error
path-normalization Authentication bypass: `//`, `/./` and encoded dots led around the check of a path.
  -> tests/gateway/test_security.py::test_no_path_spelling_bypasses_authentication
request-forgery Server-side request forgery through a custom host header, redirects and private addresses.
  -> tests/gateway/test_security.py::test_client_can_not_choose_upstream_host_or_headers
  -> tests/upstream/test_transport.py::test_redirects_are_not_followed
  -> tests/runtime/tools/test_web_fetch.py::test_no_notation_of_a_private_address_is_fetched
  -> tests/runtime/tools/test_web_fetch.py::test_redirect_target_is_checked
timing-attacks Key recovery: keys were compared in time that depends on their content.
  -> tests/gateway/test_security.py::test_keys_are_compared_in_constant_time
secrets-in-logs Keys and tool arguments leaked into logs, traces and error messages.
  -> tests/gateway/test_security.py::test_secrets_appear_nowhere
  -> tests/gateway/test_security.py::test_losses_report_paths_without_values
mcp-entitlements Authorization bypass: permissions of MCP tools not enforced on every path, credentials in errors.
  -> tests/gateway/test_security.py::test_client_can_not_choose_upstream_host_or_headers
  -> tests/runtime/mcp/test_security.py::test_every_path_to_a_tool_applies_the_policy
  -> tests/gateway/rounds/test_route_tools.py::test_call_without_an_allow_rule_is_denied
  -> tests/scenarios/test_code_execution.py::test_calls_from_code_follow_the_policy
  -> tests/runtime/mcp/test_security.py::test_approval_covers_only_the_requested_call
  -> tests/runtime/mcp/test_security.py::test_failure_messages_contain_no_credentials
  -> tests/runtime/mcp/test_server.py::test_client_headers_do_not_reach_configured_servers
cross-tenant-state A client could read the stored responses of another client by id.
  -> tests/gateway/exchange/test_dispatcher.py::test_losses_are_in_a_header_and_readable_by_the_same_key_only
  -> tests/gateway/state/test_store.py::test_rows_are_visible_to_their_owner_only
  -> tests/scenarios/test_sdk_state.py::test_another_key_cannot_access_a_response
  -> tests/scenarios/test_sdk_state.py::test_another_key_cannot_access_an_interaction
  -> tests/scenarios/test_sdk_state.py::test_another_key_cannot_access_a_conversation
template-injection Template injection: untrusted text was rendered as a template.
  -> tests/gateway/test_security.py::test_text_is_never_executed
  -> tests/gateway/test_security.py::test_header_values_are_plain_text
path-traversal File disclosure: a path or a symbolic link led out of the permitted directory.
  -> tests/gateway/test_security.py::test_no_admin_endpoints_and_no_files_are_served
  -> tests/runtime/tools/test_workspace.py::test_path_outside_is_refused
  -> tests/runtime/tools/test_workspace.py::test_link_to_the_outside_is_not_followed
  -> tests/runtime/tools/test_workspace.py::test_swapped_link_never_reveals_files_outside
  -> tests/runtime/tools/test_workspace.py::test_swapped_link_is_never_written_through
query-injection Query injection: names from a request were inserted into a metrics query.
  -> tests/gateway/test_security.py::test_usage_is_counted_from_upstreams_not_from_clients
pricing-injection Budget bypass: a client could set the price of its own request.
  -> tests/gateway/test_security.py::test_usage_is_counted_from_upstreams_not_from_clients
approval-bypass Confused deputy: an approval was not bound to the tool, arguments and id of one call.
  -> tests/runtime/test_adversarial.py::test_approval_of_another_call_is_ignored
  -> tests/runtime/run/test_run_approvals.py::test_approval_of_another_call_does_not_run_this_one
  -> tests/runtime/run/test_run_approvals.py::test_approval_digests_of_different_calls_differ
  -> tests/runtime/test_policy.py::test_tool_names_match_exactly
  -> tests/runtime/test_policy.py::test_only_workspace_reads_are_allowed_by_default
allowed-callers Privilege regression: `allowed_callers` was lost in translation.
  -> tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused
  -> tests/gateway/emulation/test_programs.py::test_direct_call_of_a_program_only_tool_is_denied
schema-explosion Denial of service: references in a schema expanded exponentially.
  -> tests/gateway/test_security.py::test_hostile_schema_does_not_block_other_requests
  -> tests/runtime/mcp/test_hostile_servers.py::test_costly_schema_skips_only_its_tool
  -> tests/runtime/mcp/test_hostile_servers.py::test_result_too_costly_to_validate_is_refused
dns-rebinding A web page reached a server on the loopback interface under another host name.
  -> tests/gateway/test_security.py::test_dns_rebinding_does_not_reach_a_loopback_gateway
  -> tests/gateway/test_security.py::test_foreign_origin_is_rejected
  -> tests/runtime/mcp/test_server.py::test_foreign_origin_or_host_is_rejected
  -> tests/cli/test_mcp.py::test_serve_over_http_applies_rules
earlier-advisories Earlier advisories of LiteLLM: eval, file deletion, SQL injection, key leaks.
  -> tests/gateway/test_security.py::test_text_is_never_executed
  -> tests/gateway/test_security.py::test_header_values_are_plain_text
  -> tests/gateway/test_security.py::test_no_admin_endpoints_and_no_files_are_served
  -> tests/gateway/test_security.py::test_secrets_appear_nowhere
  -> tests/gateway/test_security.py::test_invalid_body_is_an_error_not_a_crash
""")

# Weaknesses that tests of other gateways showed.
FURTHER_RISKS: list[Requirement] = parse_requirements(r"""
prompt-injection Tool output is promoted to an instruction.
  -> tests/gateway/test_security.py::test_tool_output_stays_data
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
report-redaction A loss report or an exported journal shows a secret that the logs redact.
  -> tests/gateway/test_security.py::test_losses_report_paths_without_values
  -> tests/cli/test_journal.py::test_later_configured_key_is_redacted_everywhere
redirects A redirect of the upstream is followed, and the prompt and the key go along.
  -> tests/upstream/test_transport.py::test_redirects_are_not_followed
keys-in-provider-errors A key that a provider quotes in its error reaches the client.
  -> tests/gateway/test_security.py::test_secrets_appear_nowhere
truncated-responses A truncated, empty or HTML response becomes a successful end.
  -> tests/gateway/exchange/test_upstream_failures.py::test_early_failure_is_an_error_in_the_clients_protocol
  -> tests/gateway/exchange/test_upstream_failures.py::test_failure_within_a_stream_ends_with_the_protocols_error
broken-connections A broken upstream connection spoils the next request.
  -> tests/gateway/exchange/test_upstream_failures.py::test_failure_does_not_affect_the_next_request
slow-schemas A hostile schema holds up other requests.
  -> tests/gateway/test_security.py::test_hostile_schema_does_not_block_other_requests
invalid-numbers NaN or Infinity is sent to a provider.
  -> tests/gateway/test_security.py::test_invalid_json_numbers_are_not_sent_upstream
request-smuggling Conflicting `Content-Length` and `Transfer-Encoding` headers are accepted.
  -> tests/gateway/test_security.py::test_content_length_with_chunked_encoding_is_refused
""")
