"""Security advisories and fixes of comparable products, each with the tests that rule the weakness out here."""

from tests.requirements.tables import Requirement, parse_requirements

# Weaknesses that were published for other gateways, agent SDKs and MCP servers.
ADVISORIES: list[Requirement] = parse_requirements(r"""
CVE-2026-42208 SQL injection before authentication: the `Authorization` header was concatenated into a query.
  -> tests/gateway/test_security.py::test_no_sign_in_a_header_is_more_than_text
  -> tests/journal/test_injection.py::test_every_statement_is_written_in_the_source
  -> tests/journal/test_injection.py::test_a_sign_in_an_id_is_more_than_nothing_to_no_query
  -> tests/scenarios/test_sdk_state.py::test_whatever_an_id_says_it_is_just_not_there
CVE-2026-49468 Authentication bypass: the path was rebuilt from the `Host` header before the check.
  -> tests/gateway/test_security.py::test_no_spelling_of_a_path_passes_the_gate
  -> tests/gateway/test_security.py::test_a_name_that_was_bound_anew_does_not_reach_a_loopback_gateway
  -> tests/gateway/server/test_auth.py::test_what_is_no_name_of_a_host_is_turned_away_keys_or_not
CVE-2026-48710 Path confusion: `/`, `?` or `#` in the `Host` header changed the path that a framework saw.
  -> tests/gateway/test_security.py::test_no_spelling_of_a_path_passes_the_gate
  -> tests/gateway/test_security.py::test_a_name_that_was_bound_anew_does_not_reach_a_loopback_gateway
  -> tests/gateway/server/test_auth.py::test_what_is_no_name_of_a_host_is_turned_away_keys_or_not
CVE-2026-30623 Remote code execution: an API request could define the command of a stdio MCP server.
  -> tests/gateway/test_security.py::test_there_is_nothing_to_administer_and_no_file_to_get
  -> tests/runtime/mcp/test_security.py::test_no_request_starts_a_program_or_adds_a_server
  -> tests/runtime/mcp/test_security.py::test_a_program_is_started_in_one_place_and_never_through_a_shell
CVE-2026-40217 Remote code execution: user code ran in the process of the gateway behind a deny list.
  -> tests/gateway/test_security.py::test_no_text_is_ever_run
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_there_is_no_way_out
  -> tests/scenarios/test_code_execution.py::test_a_program_whose_snapshot_was_changed_in_the_journal_is_refused
CVE-2026-47101 Privilege escalation: an API for keys and users accepted fields that the caller had no right to set.
  -> tests/gateway/test_security.py::test_there_is_nothing_to_administer_and_no_file_to_get
userinfo-cache-collision Authentication bypass: two identities shared one cache key.
  -> tests/gateway/server/test_auth.py::test_a_key_is_taken_from_any_protocols_own_place
  -> tests/gateway/exchange/test_dispatcher.py::test_losses_are_told_in_a_header_and_by_exchange_to_the_same_key_only
CVE-2024-6587 Server-side request forgery: the request body could choose the upstream host, which got the key.
  -> tests/gateway/test_security.py::test_a_client_never_chooses_the_host_nor_a_header
CVE-2024-8984 Denial of service before authentication: a malformed body took unbounded time to parse.
  -> tests/gateway/test_security.py::test_a_body_that_is_no_good_is_an_error_and_never_a_crash
  -> tests/gateway/test_security.py::test_a_body_over_the_limit_is_refused_whether_announced_or_not
  -> tests/gateway/server/test_endpoints.py::test_a_packed_body_that_is_no_good_is_refused
malicious-release Supply chain: a compromised release on PyPI ran code at interpreter start through a `.pth` file.
  -> tests/requirements/test_requirements.py::test_the_package_has_few_dependencies_and_no_startup_hook
CVE-2026-25591 Denial of service: wildcards from a request reached a `LIKE` pattern.
  -> tests/journal/test_injection.py::test_no_pattern_of_like_is_anybodys_to_write
GHSA-g53w-w6mj-hrpp Authentication bypass: a client header chose the upstream, protected only by a default secret.
  -> tests/gateway/test_security.py::test_a_client_never_chooses_the_host_nor_a_header
  -> tests/gateway/server/test_launch.py::test_what_can_not_be_served_is_said_in_one_line
path-normalization Authentication bypass: `//`, `/./` and encoded dots led around the check of a path.
  -> tests/gateway/test_security.py::test_no_spelling_of_a_path_passes_the_gate
request-forgery Server-side request forgery through a custom host header, redirects and private addresses.
  -> tests/gateway/test_security.py::test_a_client_never_chooses_the_host_nor_a_header
  -> tests/upstream/test_transport.py::test_a_redirect_is_an_answer_and_is_not_followed
  -> tests/runtime/tools/test_web_fetch.py::test_no_spelling_of_a_private_address_is_fetched
  -> tests/runtime/tools/test_web_fetch.py::test_a_redirect_is_judged_as_the_first_place
timing-attacks Key recovery: keys were compared in time that depends on their content.
  -> tests/gateway/test_security.py::test_keys_are_compared_in_the_same_time_whatever_they_are
secrets-in-logs Keys and tool arguments leaked into logs, traces and error messages.
  -> tests/gateway/test_security.py::test_no_secret_is_told_anywhere
  -> tests/gateway/test_security.py::test_values_that_are_lost_are_not_told_only_where_they_stood
mcp-entitlements Authorization bypass: permissions of MCP tools not enforced on every path, credentials in errors.
  -> tests/gateway/test_security.py::test_a_client_never_chooses_the_host_nor_a_header
  -> tests/runtime/mcp/test_security.py::test_there_is_no_way_round_a_rule
  -> tests/gateway/rounds/test_route_tools.py::test_what_no_rule_allows_is_denied_and_told_to_the_model
  -> tests/scenarios/test_code_execution.py::test_what_code_calls_is_decided_on_as_anything_else
  -> tests/runtime/mcp/test_security.py::test_an_approval_is_for_the_call_that_was_asked_about
  -> tests/runtime/mcp/test_security.py::test_no_credential_is_in_what_is_told_of_a_failure
  -> tests/runtime/mcp/test_server.py::test_nothing_of_a_callers_headers_goes_to_a_server_behind
cross-tenant-state A client could read the stored responses of another client by id.
  -> tests/gateway/exchange/test_dispatcher.py::test_losses_are_told_in_a_header_and_by_exchange_to_the_same_key_only
  -> tests/gateway/state/test_store.py::test_what_was_kept_is_there_for_its_owner_alone
  -> tests/scenarios/test_sdk_state.py::test_another_key_sees_no_response
  -> tests/scenarios/test_sdk_state.py::test_another_key_sees_no_interaction
  -> tests/scenarios/test_sdk_state.py::test_another_key_sees_no_conversation
template-injection Template injection: untrusted text was rendered as a template.
  -> tests/gateway/test_security.py::test_no_text_is_ever_run
  -> tests/gateway/test_security.py::test_no_sign_in_a_header_is_more_than_text
path-traversal File disclosure: a path or a symbolic link led out of the permitted directory.
  -> tests/gateway/test_security.py::test_there_is_nothing_to_administer_and_no_file_to_get
  -> tests/runtime/tools/test_workspace.py::test_a_path_that_leads_out_is_refused
  -> tests/runtime/tools/test_workspace.py::test_a_link_that_leads_out_is_not_followed
  -> tests/runtime/tools/test_workspace.py::test_a_link_that_is_swapped_in_while_a_path_is_walked_never_shows_what_is_outside
  -> tests/runtime/tools/test_workspace.py::test_a_link_that_is_swapped_in_is_never_written_through
query-injection Query injection: names from a request were inserted into a metrics query.
  -> tests/gateway/test_security.py::test_what_is_counted_is_what_upstreams_say_and_never_what_clients_do
pricing-injection Budget bypass: a client could set the price of its own request.
  -> tests/gateway/test_security.py::test_what_is_counted_is_what_upstreams_say_and_never_what_clients_do
approval-bypass Confused deputy: an approval was not bound to the tool, arguments and id of one call.
  -> tests/runtime/test_adversarial.py::test_an_approval_from_elsewhere_allows_nothing
  -> tests/runtime/run/test_loop.py::test_an_approval_of_another_call_does_not_run_this_one
  -> tests/runtime/run/test_loop.py::test_no_two_calls_have_one_binding
  -> tests/runtime/test_policy.py::test_names_of_tools_are_not_looked_up_in_anything
  -> tests/runtime/test_policy.py::test_without_a_rule_only_reading_inside_is_allowed
allowed-callers Privilege regression: `allowed_callers` was lost in translation.
  -> tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused
  -> tests/gateway/emulation/test_programs.py::test_a_direct_call_of_what_only_programs_may_call_is_denied
schema-explosion Denial of service: references in a schema expanded exponentially.
  -> tests/gateway/test_security.py::test_a_hostile_schema_does_not_hold_up_other_requests
  -> tests/runtime/mcp/test_hostile_servers.py::test_a_schema_that_would_cost_too_much_leaves_its_tool_out_and_no_other
  -> tests/runtime/mcp/test_hostile_servers.py::test_a_result_that_takes_too_long_to_check_is_refused
dns-rebinding A web page reached a server on the loopback interface under another host name.
  -> tests/gateway/test_security.py::test_a_name_that_was_bound_anew_does_not_reach_a_loopback_gateway
  -> tests/gateway/test_security.py::test_a_page_of_another_origin_is_turned_away
  -> tests/runtime/mcp/test_server.py::test_a_page_of_another_origin_or_under_another_name_is_turned_away
  -> tests/cli/test_mcp.py::test_it_serves_over_http_under_its_rules
earlier-advisories Earlier advisories of LiteLLM: eval, file deletion, SQL injection, key leaks.
  -> tests/gateway/test_security.py::test_no_text_is_ever_run
  -> tests/gateway/test_security.py::test_no_sign_in_a_header_is_more_than_text
  -> tests/gateway/test_security.py::test_there_is_nothing_to_administer_and_no_file_to_get
  -> tests/gateway/test_security.py::test_no_secret_is_told_anywhere
  -> tests/gateway/test_security.py::test_a_body_that_is_no_good_is_an_error_and_never_a_crash
""")  # noqa: E501

# Weaknesses that tests of other gateways showed.
FURTHER_RISKS: list[Requirement] = parse_requirements(r"""
prompt-injection Tool output is promoted to an instruction.
  -> tests/gateway/test_security.py::test_the_output_of_a_tool_stays_data
  -> tests/runtime/test_adversarial.py::test_what_a_tool_gives_stays_in_its_result
report-redaction A loss report or an exported journal shows a secret that the logs redact.
  -> tests/gateway/test_security.py::test_values_that_are_lost_are_not_told_only_where_they_stood
  -> tests/cli/test_journal.py::test_a_key_that_is_known_since_is_in_nothing_that_is_shown_or_exported
redirects A redirect of the upstream is followed, and the prompt and the key go along.
  -> tests/upstream/test_transport.py::test_a_redirect_is_an_answer_and_is_not_followed
keys-in-provider-errors A key that a provider quotes in its error reaches the client.
  -> tests/gateway/test_security.py::test_no_secret_is_told_anywhere
truncated-responses A truncated, empty or HTML response becomes a successful end.
  -> tests/gateway/exchange/test_upstream_failures.py::test_a_fault_before_the_first_byte_is_an_error_of_the_clients_protocol
  -> tests/gateway/exchange/test_upstream_failures.py::test_a_fault_within_a_stream_ends_it_with_the_protocols_own_error
broken-connections A broken upstream connection spoils the next request.
  -> tests/gateway/exchange/test_upstream_failures.py::test_one_fault_does_not_spoil_the_next_request
slow-schemas A hostile schema holds up other requests.
  -> tests/gateway/test_security.py::test_a_hostile_schema_does_not_hold_up_other_requests
invalid-numbers NaN or Infinity is sent to a provider.
  -> tests/gateway/test_security.py::test_what_is_no_json_number_never_goes_upstream
request-smuggling Conflicting `Content-Length` and `Transfer-Encoding` headers are accepted.
  -> tests/gateway/test_security.py::test_a_length_and_chunks_at_once_are_refused
""")  # noqa: E501
